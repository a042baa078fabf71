// The server's REST API as types; made by `npm run api -- FILE`, not by hand.
export interface paths {
    "/_/health": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The server lives. */
        get: operations["health"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/_/ready": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The server is ready: it was not told to end, and its backend answers and takes what is written. */
        get: operations["ready"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/agent-definitions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists predefined agents, by slug. */
        get: operations["list_definitions"];
        put?: never;
        /** Makes a predefined agent. */
        post: operations["create_definition"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/agent-definitions/{definition}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** One predefined agent, by its id or slug. */
        get: operations["get_definition"];
        /** Replaces a predefined agent; runs that have started keep what they started with. */
        put: operations["replace_definition"];
        post?: never;
        /** Removes a predefined agent; its runs stay. */
        delete: operations["delete_definition"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/agent-executions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists runs, newest first. `metadata.NAME=VALUE` filters by metadata. */
        get: operations["list_runs"];
        put?: never;
        /** Starts a run; it is durable when this answers. 201, or 200 where the same request had started it before. */
        post: operations["start_run"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/agent-executions/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Everything about a run. `id` is its UUID or the id it was started with. */
        get: operations["get_run"];
        put?: never;
        post?: never;
        /** Asks a run to stop gracefully. It stays listed. */
        delete: operations["delete_run"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/agent-executions/{id}/cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Asks a run to stop. One that has ended stays as it is. */
        post: operations["cancel"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/agent-executions/{id}/checkpoints": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists the checkpoints of a run, oldest first. */
        get: operations["checkpoints"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/agent-executions/{id}/checkpoints/{seq}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** One checkpoint of a run. */
        get: operations["checkpoint"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/agent-executions/{id}/checkpoints/latest": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The last checkpoint of a run. */
        get: operations["latest_checkpoint"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/agent-executions/{id}/children": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The runs that a run has started, newest first, each with what it and all below it come to. */
        get: operations["list_children"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/agent-executions/{id}/delete": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Removes a run that has ended, with its conversation, results and events. Its forks have to go first. */
        post: operations["remove_run"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/agent-executions/{id}/divergence": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Decides a divergence. `fork` answers with the fork, else the run itself. */
        post: operations["divergence"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/agent-executions/{id}/entries": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists the entries a run appended, in order, on whatever branch. */
        get: operations["entries"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/agent-executions/{id}/fork": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Starts a run that shares this one's history up to a point. */
        post: operations["fork"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/agent-executions/{id}/messages": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists the entries of the branch the run stands on, from the root. */
        get: operations["messages"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/agent-executions/{id}/messages/{entryId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** One entry of a run or of the branch it stands on. */
        get: operations["message"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/agent-executions/{id}/resolve": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Answers for a task that may or may not have taken effect; the first answer wins. */
        post: operations["resolve"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/agent-executions/{id}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Continues a paused run. With an Idempotency-Key a retried request is one resume. */
        post: operations["resume"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/agent-executions/{id}/retry": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Goes on with a run that has failed, or is paused, from its last commit: what failed is tried again, what is done stays
         *     done. With an Idempotency-Key a retried request is one retry.
         */
        post: operations["retry"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/agent-executions/{id}/signal": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Sends a signal; it may come before the run waits for it. */
        post: operations["signal"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/agent-executions/{id}/state": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * What the last checkpoint of a run keeps. `key` names a member of it; `messages` is the conversation where the state has no
         *     member of that name.
         */
        get: operations["state"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/agent-executions/{id}/stream": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * The events of the agent itself: its life, its entries, and what it streams. Once it has handed off, those of its successor
         *     come, and so on, before its own end.
         * @description Each has an `id`; `Last-Event-ID`, or `after`, resumes behind one: of what is durable nothing is missing and nothing comes
         *     twice; what is being made comes again from its start. The stream ends after the terminal event; a request at or behind it
         *     is answered with 204.
         */
        get: operations["stream"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/agent-executions/{id}/stream/consolidated": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * The events of the agent and of its tasks, and those of all runs below it, what they stream included. Each names its run
         *     and the `depth` of that. Runs that are born meanwhile join. The stream ends when the run has ended and all is told of those
         *     below it that have ended too.
         */
        get: operations["stream_consolidated"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/agent-executions/{id}/tasks": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists the tasks of a run, in the order they were scheduled. */
        get: operations["tasks"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/agent-executions/{id}/tool-calls": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists the tool calls of a run. With a filter a part may have fewer than `limit`, even none, and still a next one. */
        get: operations["tool_calls"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/agent-executions/{id}/tool-calls/{taskId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** One tool call of a run. */
        get: operations["tool_call"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/agent-executions/{id}/tree": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * A run and all runs below it, each with what it and all below it come to. Of a large family the first generations: each
         *     run says how many below it are left off, and `/children` lists them.
         */
        get: operations["get_tree"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/agent-executions/{id}/usage": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What a run has cost so far. */
        get: operations["usage_of_run"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/api-keys": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists keys, oldest first, those that no longer work included. */
        get: operations["list_keys"];
        put?: never;
        /** Makes a key. */
        post: operations["create_key"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/api-keys/{keyId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** Revokes a key: every server refuses it within five seconds. One that was revoked before stays as it is. */
        delete: operations["revoke_key"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/audit": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists what was done to keys and runs, newest first. */
        get: operations["audit"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/machines": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists machines, oldest first, those that were revoked included. */
        get: operations["list_machines"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/machines/{machine}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** Revokes a machine with its key; what it held is free at once, and its name too. */
        delete: operations["revoke_machine"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/machines/pairings/{code}/approve": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Approves the code that a machine shows, for this org. */
        post: operations["approve_machine"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/models": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists the models to pick, by reference, all on one page; no provider is asked. */
        get: operations["models"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/payloads": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * Stores a value of more than 8 KiB for a request that will refer to it within a day; at most 256 MiB. As
         *     `application/json` it is JSON, else bytes as they are.
         */
        put: operations["put_payload"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/payloads/{hash}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The bytes of a value that was told by reference. */
        get: operations["get_payload"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/queues": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists queues by kind: what waits, what runs, what nobody serves. Kinds that live workers serve are listed when idle, too. */
        get: operations["queues"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/queues/{queue}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /** Limits a queue, in place of the limit it has. */
        put: operations["limit_queue"];
        post?: never;
        /** Frees a queue of its limit. */
        delete: operations["free_queue"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/queues/limits": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists the queues that have a limit. */
        get: operations["list_queue_limits"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/queues/unserved": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists the kinds with work that no live worker serves. */
        get: operations["unserved"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/schedules": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists schedules, by id. */
        get: operations["list_schedules"];
        put?: never;
        /** Makes a schedule, or replaces the one of its id. */
        post: operations["put_schedule"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/schedules/{schedule}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** One schedule. */
        get: operations["get_schedule"];
        put?: never;
        post?: never;
        /** Removes a schedule; the runs that it started stay. */
        delete: operations["delete_schedule"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/tools": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists the host tools to pick, by name, all on one page. */
        get: operations["tools"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/usage": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What the runs that were started in a span of time have cost so far; without one, those of the last day. */
        get: operations["usage_of_org"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/orgs/{org}/workers": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists the workers that are known, by id; one that is gone is forgotten some time after. */
        get: operations["workers"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/docs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** This document as a page. */
        get: operations["docs"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/machines/pairings": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * How a pairing stands, for the machine, which sends its secret as a bearer token. Once it is approved, the answer has the
         *     machine's token, and the secret ends.
         */
        get: operations["collect_pairing"];
        put?: never;
        /**
         * Asks to be let in as a machine: a code for a person, and a secret for the machine, both for ten minutes. Needs no token; an
         *     address may ask ten times a minute.
         */
        post: operations["request_pairing"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/metrics": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** What the server has counted, of every org; for a token of the org `default` with the scope `audit:read`. */
        get: operations["metrics"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/openapi.json": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** This document. */
        get: operations["openapi"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /** @description A predefined agent. */
        AgentDefinition: {
            config: {
                [key: string]: unknown;
            };
            createdAt: string;
            description?: string | null;
            /** Format: uuid */
            id: string;
            kind: string;
            metadata: {
                [key: string]: string;
            };
            models: unknown[];
            name: string;
            /** Format: uuid */
            orgId: string;
            queue: string;
            slug: string;
            systemPrompt?: string | null;
            tools: unknown[];
            updatedAt: string;
        };
        /** @description A run: the view that all show, what only REST shows, and older names that go on to be shown. */
        AgentExecution: components["schemas"]["RunView"] & {
            /** @description The id of the predefined agent it is one of. */
            agentId?: string | null;
            budget?: components["schemas"]["Budget"] | null;
            /**
             * Format: int64
             * @description The runs that it has started itself.
             */
            childCount?: number | null;
            /** @description An older name of `endedAt`. */
            completedAt?: string | null;
            /**
             * Format: int64
             * @description The last checkpoint, as `segment` says, but -1 before the first.
             */
            currentCheckpointSeq: number;
            /**
             * Format: int64
             * @description All runs below it.
             */
            descendantCount?: number | null;
            /**
             * Format: double
             * @description Seconds from its start to its end, or until now.
             */
            duration: number;
            /** @description The message of `failure`. */
            error?: string | null;
            input?: unknown;
            inputRef?: components["schemas"]["PayloadRef"] | null;
            /**
             * Format: uuid
             * @description An older name of `leaf`.
             */
            leafEntryId?: string | null;
            machine?: components["schemas"]["RunMachine"] | null;
            /** Format: uuid */
            orgId: string;
            output?: unknown;
            outputRef?: components["schemas"]["PayloadRef"] | null;
            /**
             * Format: uuid
             * @description An older name of `parent`.
             */
            parentId?: string | null;
            /**
             * Format: uuid
             * @description The run it goes on from, where it is a fork: the `execution` of `forkedFrom`.
             */
            resumedFrom?: string | null;
            /**
             * Format: uuid
             * @description An older name of `root`.
             */
            rootId: string;
            /** @description The same as `createdAt`. When a worker first took it, its events say. */
            startedAt: string;
            summary: components["schemas"]["Summary"];
            totalUsage?: components["schemas"]["ModelUsage"] | null;
            /**
             * Format: uuid
             * @description An older name of `worker`.
             */
            workerId?: string | null;
        };
        /** @description A run with the runs below it. */
        AgentExecutionTree: components["schemas"]["AgentExecution"] & {
            /** @description Its children, in the order in which they were started. */
            children: components["schemas"]["AgentExecutionTree"][];
            /**
             * Format: int64
             * @description How many runs below it are not shown.
             */
            leftOff: number;
        };
        /** @description How a machine is approved. */
        Approve: {
            /**
             * @description Another name than the machine asked for.
             * @default null
             */
            name: string | null;
            /**
             * @description Whose machine it is; the name of the caller's key without it.
             * @default null
             */
            owner: string | null;
        };
        /** @description A machine that was approved; it has its key once it has collected it. */
        ApprovedMachine: {
            /** @description What the computer said of itself, and the address it asked from. */
            host: string;
            name: string;
            owner: string;
        };
        /** @description One thing that was done. */
        AuditView: {
            /** @description What, such as `key.revoked` or `execution.cancel`. */
            action: string;
            /** @description Who, and the id of the request where it was one. */
            actor: string;
            at: string;
            /**
             * Format: int64
             * @description Its number; later ones have higher ones.
             */
            id: number;
            /** @description 32 bytes in hexadecimal that seal the row and all before it; none on one that an older version wrote. */
            seal: string | null;
            /** @description To what: an id or a name. */
            subject: string;
        };
        /** @description The budget of a run; what is null is without limit. */
        Budget: {
            /**
             * Format: int64
             * @description Model calls.
             */
            maxCalls?: number | null;
            /**
             * Format: double
             * @description US dollars.
             */
            maxCostUsd?: number | null;
            /**
             * Format: int64
             * @description Tokens in all.
             */
            maxTokens?: number | null;
            /**
             * Format: int64
             * @description The most tokens that one answer may have.
             */
            maxTokensPerCall?: number | null;
        };
        /** @description How to stop. */
        Cancel: {
            /** @description `graceful` (default): the run may tidy up. `hard`: it ends at once. */
            mode?: string | null;
            /**
             * Format: double
             * @description How long a graceful stop may take; 30 without it.
             */
            timeoutSeconds?: number | null;
        };
        /** @description Where a run with state starts again. */
        Checkpoint: components["schemas"]["CheckpointView"] & {
            /** Format: uuid */
            agentExecutionId: string;
            /** Format: uuid */
            id: string;
            /**
             * Format: uuid
             * @description An older name of `leaf`.
             */
            leafEntryId?: string | null;
            state?: unknown;
            stateRef?: components["schemas"]["PayloadRef"] | null;
        };
        /** @description The checkpoints of a run. */
        Checkpoints: {
            checkpoints: components["schemas"]["Checkpoint"][];
            /** @description Pass it as `cursor` for the next part; null at the end. */
            nextCursor?: string | null;
        };
        /** @description A place where a run starts again, without its state. */
        CheckpointView: {
            /** @description When it was saved. */
            createdAt: components["schemas"]["Moment"];
            /**
             * Format: uuid
             * @description The entry at which the conversation stood.
             */
            leaf?: string | null;
            /** @description What its author said about it, such as its `reason`. */
            metadata?: unknown;
            /**
             * Format: int32
             * @description From 1.
             */
            sequence: number;
            /**
             * Format: int64
             * @description Bytes of the state.
             */
            stateSize: number;
            /** @description What the run's model calls had cost by then, by model. */
            usage: {
                [key: string]: components["schemas"]["ModelUsage"];
            };
        };
        /** @description A key that was made. */
        CreatedKey: components["schemas"]["KeyView"] & {
            /** @description Shown this once: the store keeps a hash of it. */
            token: string;
        };
        /** @description A key to be made. */
        CreateKey: {
            /**
             * Format: int32
             * @description Days that it works: 90 without it, at most 365.
             */
            expiresInDays?: number | null;
            /** @description What people call it: 1 to 200 characters. */
            name: string;
            /** @description It works until it is revoked. */
            neverExpires?: boolean;
            /** @description Roles or scopes, separated by commas or spaces; `member,worker` without it. None that the caller's own key lacks. */
            scopes?: string | null;
        };
        /** @description A decision about a run whose code no longer matches. */
        Decision: {
            /** @description `continue` with the new code, `fork`, or `stay` paused. */
            decision: string;
        };
        /** @description What a predefined agent is. */
        DefinitionBody: {
            /** @description Settings by name, such as `maxTurns`, `maxTokens`, `temperature`. */
            config?: {
                [key: string]: unknown;
            };
            description?: string | null;
            /** @description The agent whose code runs it. */
            kind: string;
            /** @description Metadata of its runs, for filters. */
            metadata?: {
                [key: string]: string;
            };
            /** @description As its agent takes them. */
            models?: unknown[];
            /** @description Its name for people; the slug without one. */
            name?: string | null;
            /** @description The queue of its runs; `default` without one. */
            queue?: string | null;
            /**
             * @description Its name in URLs: lower-case letters, digits and `-`, unique in the org.
             * @example otters
             */
            slug: string;
            systemPrompt?: string | null;
            /** @description As its agent takes them. */
            tools?: unknown[];
        };
        /** @description A node of the conversation: the view that all show, its content, and an older name that goes on to be shown. */
        Entry: components["schemas"]["EntryView"] & {
            /**
             * Format: uuid
             * @description An older name of `execution`.
             */
            agentExecutionId: string;
            content?: unknown;
            contentRef?: components["schemas"]["PayloadRef"] | null;
            /**
             * @description The op of that run that appended it: what was streamed for it is replaced by this.
             * @example 0-3
             */
            op: string;
            /**
             * Format: int32
             * @description The step of its run in which it was appended, from 1; null where the agent counts no steps.
             */
            stepNumber?: number | null;
        };
        /** @description A node of the conversation, without its content. */
        EntryView: {
            /** @description When it was appended. */
            createdAt: components["schemas"]["Moment"];
            /**
             * Format: int32
             * @description Distance from the root.
             */
            depth: number;
            /**
             * @description What it is.
             * @example message
             */
            entryType: string;
            /**
             * Format: uuid
             * @description The run that appended it: of a fork's branch, also the run it was forked from.
             */
            execution: string;
            /**
             * Format: uuid
             * @description Its UUID.
             */
            id: string;
            /** @description What its author said about it. */
            metadata?: unknown;
            /**
             * Format: uuid
             * @description The entry before it.
             */
            parentId?: string | null;
            /**
             * @description Who says it.
             * @example assistant
             */
            role: string;
            /** @description Empty for the main thread. */
            thread: string;
            /** @description The turn it belongs to. */
            turnId?: string | null;
        };
        /** @description Why a run or a task failed. */
        Failure: {
            /**
             * Format: int32
             * @description The attempts of it that failed.
             */
            attempts: number;
            /** @description The error's code. */
            code: string;
            /** @description The class of the original error. */
            errorType: string;
            /** @description The kind of the task that failed. */
            kind?: string | null;
            /** @description What it says. */
            message: string;
            /**
             * Format: uuid
             * @description The task that failed.
             */
            task?: string | null;
            /** @description Where it was raised. */
            traceback?: string | null;
            /** @description The same, by an older name. */
            type: string;
        };
        /** @description Where a run was forked from. */
        Fork: {
            /**
             * Format: uuid
             * @description The run whose past it shares.
             */
            execution: string;
            /**
             * Format: uuid
             * @description The same, by an older name.
             */
            id: string;
            /**
             * Format: int32
             * @description The segment of that run.
             */
            segment: number;
            /**
             * Format: int32
             * @description The last call of the segment that is shared; null for a fork at a checkpoint.
             */
            sequence?: number | null;
        };
        /** @description What the run may use of models */
        GivenBudget: {
            /** @description Model calls; also `calls` */
            maxCalls?: number | null;
            /** @description Millionths of a US dollar, instead of maxCostUsd */
            maxCostMicros?: number | null;
            /** @description US dollars; also `costUsd` and `cost_usd` */
            maxCostUsd?: number | null;
            /** @description Tokens in all; also `tokens` */
            maxTokens?: number | null;
            /** @description The most tokens that one answer may have */
            maxTokensPerCall?: number | null;
        } | number | string;
        /** @description A part of a listing. */
        Items_AgentDefinition: {
            /** @description What is listed. */
            items: {
                config: {
                    [key: string]: unknown;
                };
                createdAt: string;
                description?: string | null;
                /** Format: uuid */
                id: string;
                kind: string;
                metadata: {
                    [key: string]: string;
                };
                models: unknown[];
                name: string;
                /** Format: uuid */
                orgId: string;
                queue: string;
                slug: string;
                systemPrompt?: string | null;
                tools: unknown[];
                updatedAt: string;
            }[];
            /** @description Pass it as `cursor` for the next part; null at the end. */
            nextCursor?: string | null;
        };
        /** @description A part of a listing. */
        Items_AgentExecution: {
            /** @description What is listed. */
            items: (components["schemas"]["RunView"] & {
                /** @description The id of the predefined agent it is one of. */
                agentId?: string | null;
                budget?: components["schemas"]["Budget"] | null;
                /**
                 * Format: int64
                 * @description The runs that it has started itself.
                 */
                childCount?: number | null;
                /** @description An older name of `endedAt`. */
                completedAt?: string | null;
                /**
                 * Format: int64
                 * @description The last checkpoint, as `segment` says, but -1 before the first.
                 */
                currentCheckpointSeq: number;
                /**
                 * Format: int64
                 * @description All runs below it.
                 */
                descendantCount?: number | null;
                /**
                 * Format: double
                 * @description Seconds from its start to its end, or until now.
                 */
                duration: number;
                /** @description The message of `failure`. */
                error?: string | null;
                input?: unknown;
                inputRef?: components["schemas"]["PayloadRef"] | null;
                /**
                 * Format: uuid
                 * @description An older name of `leaf`.
                 */
                leafEntryId?: string | null;
                machine?: components["schemas"]["RunMachine"] | null;
                /** Format: uuid */
                orgId: string;
                output?: unknown;
                outputRef?: components["schemas"]["PayloadRef"] | null;
                /**
                 * Format: uuid
                 * @description An older name of `parent`.
                 */
                parentId?: string | null;
                /**
                 * Format: uuid
                 * @description The run it goes on from, where it is a fork: the `execution` of `forkedFrom`.
                 */
                resumedFrom?: string | null;
                /**
                 * Format: uuid
                 * @description An older name of `root`.
                 */
                rootId: string;
                /** @description The same as `createdAt`. When a worker first took it, its events say. */
                startedAt: string;
                summary: components["schemas"]["Summary"];
                totalUsage?: components["schemas"]["ModelUsage"] | null;
                /**
                 * Format: uuid
                 * @description An older name of `worker`.
                 */
                workerId?: string | null;
            })[];
            /** @description Pass it as `cursor` for the next part; null at the end. */
            nextCursor?: string | null;
        };
        /** @description A part of a listing. */
        Items_AuditView: {
            /** @description What is listed. */
            items: {
                /** @description What, such as `key.revoked` or `execution.cancel`. */
                action: string;
                /** @description Who, and the id of the request where it was one. */
                actor: string;
                at: string;
                /**
                 * Format: int64
                 * @description Its number; later ones have higher ones.
                 */
                id: number;
                /** @description 32 bytes in hexadecimal that seal the row and all before it; none on one that an older version wrote. */
                seal: string | null;
                /** @description To what: an id or a name. */
                subject: string;
            }[];
            /** @description Pass it as `cursor` for the next part; null at the end. */
            nextCursor?: string | null;
        };
        /** @description A part of a listing. */
        Items_Entry: {
            /** @description What is listed. */
            items: (components["schemas"]["EntryView"] & {
                /**
                 * Format: uuid
                 * @description An older name of `execution`.
                 */
                agentExecutionId: string;
                content?: unknown;
                contentRef?: components["schemas"]["PayloadRef"] | null;
                /**
                 * @description The op of that run that appended it: what was streamed for it is replaced by this.
                 * @example 0-3
                 */
                op: string;
                /**
                 * Format: int32
                 * @description The step of its run in which it was appended, from 1; null where the agent counts no steps.
                 */
                stepNumber?: number | null;
            })[];
            /** @description Pass it as `cursor` for the next part; null at the end. */
            nextCursor?: string | null;
        };
        /** @description A part of a listing. */
        Items_KeyView: {
            /** @description What is listed. */
            items: {
                createdAt: string;
                /** @description When it stops working; null: never. */
                expiresAt?: string | null;
                /** Format: uuid */
                id: string;
                name: string;
                revokedAt?: string | null;
                /** @description What it allows, separated by spaces. */
                scopes: string;
            }[];
            /** @description Pass it as `cursor` for the next part; null at the end. */
            nextCursor?: string | null;
        };
        /** @description A part of a listing. */
        Items_Machine: {
            /** @description What is listed. */
            items: {
                createdAt: string;
                /** @description When its key ends; null: never. */
                expiresAt?: string | null;
                /**
                 * Format: uuid
                 * @description The id of its key.
                 */
                key: string;
                /** @description Whether it may work: neither it nor its key was revoked, and its key has not expired. */
                live: boolean;
                name: string;
                /** @description What it offers, as it says: `host`, `version`, `kinds`, `workspaces`, …. */
                offers: Record<string, never>;
                /** @description Whose it is, as who approved it says. */
                owner: string;
                revokedAt?: string | null;
                /** @description Its last sign of life, to ten seconds; null before the first. */
                seenAt?: string | null;
            }[];
            /** @description Pass it as `cursor` for the next part; null at the end. */
            nextCursor?: string | null;
        };
        /** @description A part of a listing. */
        Items_Model: {
            /** @description What is listed. */
            items: {
                /**
                 * Format: int64
                 * @description Tokens that prompt and answer may have together; null where unknown.
                 */
                contextWindow?: number | null;
                /** @description The model's id at its provider. */
                id: string;
                /** @description Whether it takes images. */
                images: boolean;
                /** @description Whether this server's environment has a key for its provider, or an address of its own that wants none. */
                isAvailable: boolean;
                /**
                 * Format: int64
                 * @description The most tokens it generates; null where unknown.
                 */
                maxOutput?: number | null;
                /** @description Its name for people. */
                name: string;
                prices?: components["schemas"]["ListPrices"] | null;
                /** @description The provider's name. */
                provider: string;
                /**
                 * @description `provider/model`.
                 * @example openrouter/z-ai/glm-4.7
                 */
                reference: string;
                /** @description Whether its provider can force its answers into the form of a JSON Schema. */
                structured: boolean;
                /** @description Whether it takes a temperature. */
                temperature: boolean;
                /** @description How it can be made to think: `none`, `toggle`, `effort`, `budget`, `adaptive` or `always`. */
                thinking: string;
                /** @description Whether it calls tools. */
                tools: boolean;
            }[];
            /** @description Pass it as `cursor` for the next part; null at the end. */
            nextCursor?: string | null;
        };
        /** @description A part of a listing. */
        Items_Queue: {
            /** @description What is listed. */
            items: (components["schemas"]["QueueLimit"] & {
                queue: string;
            })[];
            /** @description Pass it as `cursor` for the next part; null at the end. */
            nextCursor?: string | null;
        };
        /** @description A part of a listing. */
        Items_QueueView: {
            /** @description What is listed. */
            items: {
                /** @description The agent or the task. */
                kind: string;
                queue: string;
                /**
                 * Format: int64
                 * @description How many wait for a worker.
                 */
                queued: number;
                /**
                 * Format: int64
                 * @description How many workers hold.
                 */
                running: number;
                /**
                 * Format: int64
                 * @description How many wait, and no live worker serves them.
                 */
                unserved: number;
            }[];
            /** @description Pass it as `cursor` for the next part; null at the end. */
            nextCursor?: string | null;
        };
        /** @description A part of a listing. */
        Items_Schedule: {
            /** @description What is listed. */
            items: {
                concurrencyKey?: string | null;
                /** Format: int32 */
                concurrencyLimit?: number | null;
                /** @description When it was made, or last replaced. */
                createdAt: string;
                cron: string;
                id: string;
                input: unknown;
                kind: string;
                metadata: {
                    [key: string]: string;
                };
                /** @description When the next run starts; null if never again, and while it is paused. */
                nextAt?: string | null;
                paused: boolean;
                /** Format: int32 */
                priority: number;
                queue: string;
                timezone?: string | null;
            }[];
            /** @description Pass it as `cursor` for the next part; null at the end. */
            nextCursor?: string | null;
        };
        /** @description A part of a listing. */
        Items_Tool: {
            /** @description What is listed. */
            items: {
                /** @description What it does, as models are told. */
                description: string;
                /** @description What a call does to the world: `read`, `write` or `exec`; approvals go by it. */
                effect: string;
                /** @description The JSON Schema of its arguments. */
                inputSchema: unknown;
                /** @description Its name, which definitions and runs take. */
                name: string;
                /** @description Where it runs: `host`, in the worker, or `mcp`, at an MCP server. */
                source: string;
            }[];
            /** @description Pass it as `cursor` for the next part; null at the end. */
            nextCursor?: string | null;
        };
        /** @description A part of a listing. */
        Items_ToolCall: {
            /** @description What is listed. */
            items: {
                arguments?: unknown;
                argumentsRef?: components["schemas"]["PayloadRef"] | null;
                /** Format: int32 */
                attempt: number;
                completedAt?: string | null;
                createdAt: string;
                /**
                 * Format: double
                 * @description How long its last attempt ran.
                 */
                durationMs?: number | null;
                error?: string | null;
                /**
                 * Format: uuid
                 * @description The task.
                 */
                id: string;
                /**
                 * Format: uuid
                 * @description The assistant message that asked for it; null where there was none.
                 */
                messageId?: string | null;
                opId: string;
                result?: unknown;
                resultRef?: components["schemas"]["PayloadRef"] | null;
                /** @example COMPLETED */
                status: string;
                /**
                 * Format: int32
                 * @description The step of the run in which it was asked for, from 1; null where the agent counts no steps.
                 */
                stepNumber?: number | null;
                toolName: string;
            }[];
            /** @description Pass it as `cursor` for the next part; null at the end. */
            nextCursor?: string | null;
        };
        /** @description A part of a listing. */
        Items_Unserved: {
            /** @description What is listed. */
            items: {
                /** @description The agent or the task. */
                kind: string;
                queue: string;
                /**
                 * Format: int64
                 * @description How many wait.
                 */
                waiting: number;
            }[];
            /** @description Pass it as `cursor` for the next part; null at the end. */
            nextCursor?: string | null;
        };
        /** @description A part of a listing. */
        Items_WorkerView: {
            /** @description What is listed. */
            items: {
                /** @description Whether it is believed to live. */
                alive: boolean;
                /** @description Until when it is believed to live without another sign. */
                aliveUntil: string;
                /** Format: uuid */
                id: string;
                /** @description Host, process and name, for people. */
                name: string;
                /** @description The queues it said it polls. */
                queues: string[];
                /** @description Its last sign of life that was noted. */
                seenAt: string;
                /** @description What its claims asked for. */
                serves: components["schemas"]["Served"][];
            }[];
            /** @description Pass it as `cursor` for the next part; null at the end. */
            nextCursor?: string | null;
        };
        /** @description A key. Its token is shown when it is made, and never again. */
        KeyView: {
            createdAt: string;
            /** @description When it stops working; null: never. */
            expiresAt?: string | null;
            /** Format: uuid */
            id: string;
            name: string;
            revokedAt?: string | null;
            /** @description What it allows, separated by spaces. */
            scopes: string;
        };
        /** @description List prices in millionths of a US dollar per million tokens, for prompts of ordinary length. */
        ListPrices: {
            /**
             * Format: int64
             * @description Of tokens sent that the provider had cached.
             */
            cacheRead: number;
            /**
             * Format: int64
             * @description Of tokens sent.
             */
            input: number;
            /**
             * Format: int64
             * @description Of tokens generated.
             */
            output: number;
            /** @description The date or name of the table. */
            tableVersion: string;
        };
        /** @description A machine: a computer that was let in by name. Its worker serves the queue `machine/NAME`. */
        Machine: {
            createdAt: string;
            /** @description When its key ends; null: never. */
            expiresAt?: string | null;
            /**
             * Format: uuid
             * @description The id of its key.
             */
            key: string;
            /** @description Whether it may work: neither it nor its key was revoked, and its key has not expired. */
            live: boolean;
            name: string;
            /** @description What it offers, as it says: `host`, `version`, `kinds`, `workspaces`, …. */
            offers: Record<string, never>;
            /** @description Whose it is, as who approved it says. */
            owner: string;
            revokedAt?: string | null;
            /** @description Its last sign of life, to ten seconds; null before the first. */
            seenAt?: string | null;
        };
        /** @description A model to pick. */
        Model: {
            /**
             * Format: int64
             * @description Tokens that prompt and answer may have together; null where unknown.
             */
            contextWindow?: number | null;
            /** @description The model's id at its provider. */
            id: string;
            /** @description Whether it takes images. */
            images: boolean;
            /** @description Whether this server's environment has a key for its provider, or an address of its own that wants none. */
            isAvailable: boolean;
            /**
             * Format: int64
             * @description The most tokens it generates; null where unknown.
             */
            maxOutput?: number | null;
            /** @description Its name for people. */
            name: string;
            prices?: components["schemas"]["ListPrices"] | null;
            /** @description The provider's name. */
            provider: string;
            /**
             * @description `provider/model`.
             * @example openrouter/z-ai/glm-4.7
             */
            reference: string;
            /** @description Whether its provider can force its answers into the form of a JSON Schema. */
            structured: boolean;
            /** @description Whether it takes a temperature. */
            temperature: boolean;
            /** @description How it can be made to think: `none`, `toggle`, `effort`, `budget`, `adaptive` or `always`. */
            thinking: string;
            /** @description Whether it calls tools. */
            tools: boolean;
        };
        /** @description Calls of one model and what they cost; kinds of tokens are disjoint. */
        ModelUsage: {
            /**
             * Format: int64
             * @description Tokens of prompts that the provider had cached.
             */
            cacheReadTokens: number;
            /**
             * Format: int64
             * @description Tokens of prompts that the provider was to cache.
             */
            cacheWriteTokens: number;
            /**
             * Format: int64
             * @description Calls.
             */
            calls: number;
            /**
             * Format: int64
             * @description Millionths of a US dollar; null where a price is not known.
             */
            costMicros?: number | null;
            /**
             * Format: int64
             * @description Fresh tokens of prompts.
             */
            inputTokens: number;
            /**
             * Format: int64
             * @description Tokens of answers.
             */
            outputTokens: number;
        };
        /**
         * Format: date-time
         * @description A point in time.
         */
        Moment: string;
        /** @description What to start, and when. */
        NewSchedule: {
            /** @description Concurrency key of the runs. */
            concurrencyKey?: string | null;
            /**
             * Format: int32
             * @description How many runs of the key there may be at a time; 1 without one.
             */
            concurrencyLimit?: number | null;
            /**
             * @description Minute, hour, day of month, month, day of week; seconds may come first, a year last. Or `@daily` and the like.
             * @example 0 8 * * MON-FRI
             */
            cron: string;
            /** @description Any string up to 200 characters, unique in the org; a fresh one without it. */
            id?: string | null;
            /** @description The argument of every run; null without one. */
            input?: unknown;
            /** @description The agent. */
            kind: string;
            /** @description For filters: names and values, 16384 bytes together */
            metadata?: {
                [key: string]: string;
            };
            /** @description It starts nothing until it is put again without this. */
            paused?: boolean;
            /**
             * Format: int32
             * @description Priority of the runs.
             */
            priority?: number;
            /** @description The queue of the runs; `default` without one. */
            queue?: string | null;
            /**
             * @description The IANA time zone whose clock counts; UTC without one.
             * @example Europe/Paris
             */
            timezone?: string | null;
        };
        /** @description A pairing that has begun. */
        Pairing: {
            /**
             * @description For the person who approves it.
             * @example BCDF-GHJK
             */
            code: string;
            expiresAt: string;
            /** @description For the machine alone. */
            secret: string;
        };
        /** @description How a pairing stands. */
        PairingState: {
            name?: string | null;
            /** @description The org's id, `default` for that of calls that name none. */
            org?: string | null;
            /**
             * @description `waiting`, or `paired`: then the rest is there, this once.
             * @example waiting
             */
            state: string;
            token?: string | null;
        };
        /** @description A value that is not in place: `GET href` for its bytes. */
        PayloadRef: {
            /** @description The bytes of a small value that is no JSON. */
            base64?: string | null;
            /** @description `json` or `raw`. */
            encoding?: string | null;
            /** @description BLAKE3 of the bytes, in hex. A small value that is no JSON has none. */
            hash?: string | null;
            /** @description Where the bytes are. */
            href?: string | null;
            /**
             * Format: int64
             * @description The number of bytes.
             */
            size: number;
        };
        /** @description The body of an error. */
        Problem: {
            /** @description The word for it in every language; `docs/errors` has a page for each. */
            code: string;
            /** @description Named facts: ids, sizes, limits. */
            context: {
                [key: string]: string;
            };
            /** @description What was asked, what was found, what to do. */
            detail: string;
            /** @description Whether the same request may succeed later without any change. */
            retryable: boolean;
            /**
             * Format: int32
             * @description The status of the response.
             */
            status: number;
            /** @description What the code means. */
            title: string;
            /**
             * @description Names the code for programs that know problem+json.
             * @example urn:flovyn:error:NotFound
             */
            type: string;
        };
        /** @description A queue with its limit. */
        Queue: components["schemas"]["QueueLimit"] & {
            queue: string;
        };
        /** @description What a queue may do at most. */
        QueueLimit: {
            /**
             * Format: int32
             * @description Runs that workers hold at the same time; waiting ones do not count.
             */
            concurrency?: number | null;
            rate?: components["schemas"]["Rate"] | null;
        };
        /** @description What a queue has of one kind. */
        QueueView: {
            /** @description The agent or the task. */
            kind: string;
            queue: string;
            /**
             * Format: int64
             * @description How many wait for a worker.
             */
            queued: number;
            /**
             * Format: int64
             * @description How many workers hold.
             */
            running: number;
            /**
             * Format: int64
             * @description How many wait, and no live worker serves them.
             */
            unserved: number;
        };
        /** @description So many in a time, at once or spread over it. */
        Rate: {
            /** Format: int32 */
            runs: number;
            /** Format: double */
            seconds: number;
        };
        /** @description A computer that asks to be let in. */
        RequestPairing: {
            /** @description What it says of itself to whoever approves it. */
            host?: string;
            /** @description The name it wants: 1 to 63 letters, digits, `-`, `_` and `.`. */
            name: string;
        };
        /** @description An answer for a task in doubt or quarantined: one of `result`, `error` and `retry`. */
        Resolve: {
            /** @description It failed, with this message. */
            error?: string | null;
            /** @description The op of the task. */
            opId: string;
            /** @description It took effect, and this is its result. */
            result?: unknown;
            resultRef?: components["schemas"]["PayloadRef"] | null;
            /** @description Run it again. */
            retry?: boolean;
        };
        /** @description How a paused run, or one that has failed, goes on. */
        Resume: {
            budget?: components["schemas"]["GivenBudget"] | null;
            /**
             * Format: int32
             * @description Steps from now on.
             */
            maxSteps?: number | null;
            /**
             * Format: int32
             * @description A new limit of the tail.
             */
            maxTail?: number | null;
            /** @description A user entry to append first. */
            message?: unknown;
        };
        /** @description What the runs of a span of time have cost. */
        RolledUp: components["schemas"]["Usage"] & {
            from: string;
            /**
             * Format: int64
             * @description The runs that were started then.
             */
            runs: number;
            until: string;
        };
        /** @description The machine that a run is for. */
        RunMachine: {
            /** @description Whether it may work: it is known, and was not revoked. */
            live: boolean;
            /** @description Its name. */
            name: string;
            seenAt?: components["schemas"]["Moment"] | null;
        };
        /** @description A run, without its input and output. */
        RunView: {
            cancel?: components["schemas"]["Stop"] | null;
            /** @description Whether it was asked to stop. */
            cancelRequested: boolean;
            /** @description The version of the code that ran it last, as that code says it. */
            code?: string | null;
            /** @description When it was started. */
            createdAt: components["schemas"]["Moment"];
            /**
             * Format: int32
             * @description How many runs are above it.
             */
            depth: number;
            endedAt?: components["schemas"]["Moment"] | null;
            /**
             * Format: int64
             * @description Grows with every claim.
             */
            epoch: number;
            failure?: components["schemas"]["Failure"] | null;
            forkedFrom?: components["schemas"]["Fork"] | null;
            /**
             * Format: uuid
             * @description The run that it has given its work to.
             */
            handedTo?: string | null;
            /**
             * Format: uuid
             * @description Its UUID.
             */
            id: string;
            /** @description The id it was started with, where that is no UUID. */
            key?: string | null;
            /** @description The agent. */
            kind: string;
            /**
             * Format: uuid
             * @description The entry where the conversation stands.
             */
            leaf?: string | null;
            leaseExpires?: components["schemas"]["Moment"] | null;
            /** @description For filters. */
            metadata: {
                [key: string]: string;
            };
            /**
             * Format: uuid
             * @description The run that started it.
             */
            parent?: string | null;
            /**
             * @description Whether its journal is kept: `full`, or `minimal` or `ephemeral` while the store has nothing of it but its end, its
             *     usage and its signals.
             * @example full
             */
            persistence: string;
            /**
             * Format: int32
             * @description Higher is claimed first.
             */
            priority: number;
            /** @description The queue it is in. */
            queue: string;
            /**
             * Format: uuid
             * @description The first run of its family; itself where no run started it.
             */
            root: string;
            /**
             * Format: int32
             * @description The last checkpoint; 0 before the first.
             */
            segment: number;
            /**
             * @description PENDING, RUNNING, WAITING, PAUSED, CANCELLING, COMPLETED, FAILED or CANCELLED.
             * @example WAITING
             */
            status: string;
            /**
             * Format: int32
             * @description Steps it has made.
             */
            stepCount: number;
            /**
             * Format: int32
             * @description Steps after which it pauses.
             */
            stepLimit?: number | null;
            /**
             * Format: int32
             * @description Recorded calls since the last checkpoint after which it pauses.
             */
            tailLimit: number;
            /** @description When anything of it last changed. */
            updatedAt: components["schemas"]["Moment"];
            /** @description What its model calls have cost, by model. */
            usage: {
                [key: string]: components["schemas"]["ModelUsage"];
            };
            /**
             * @description Why it does not advance: `signal`, `task`, `child`, `timer`, `in_doubt`, `step_limit`, `tail_limit`, `budget`,
             *     `divergence`, `quarantined` or `error`.
             */
            waitReason?: string | null;
            waits?: components["schemas"]["Waits"] | null;
            /** @description The signals it waits for that somebody has to send. */
            waitsFor: string[];
            /**
             * Format: uuid
             * @description The worker that holds it.
             */
            worker?: string | null;
        };
        /** @description A schedule. */
        Schedule: {
            concurrencyKey?: string | null;
            /** Format: int32 */
            concurrencyLimit?: number | null;
            /** @description When it was made, or last replaced. */
            createdAt: string;
            cron: string;
            id: string;
            input: unknown;
            kind: string;
            metadata: {
                [key: string]: string;
            };
            /** @description When the next run starts; null if never again, and while it is paused. */
            nextAt?: string | null;
            paused: boolean;
            /** Format: int32 */
            priority: number;
            queue: string;
            timezone?: string | null;
        };
        /** @description A kind in a queue. */
        Served: {
            kind: string;
            queue: string;
        };
        /** @description A message to a run. */
        Signal: {
            /** @description `next_step` (default), `next_turn` or `now`. */
            delivery?: string | null;
            /** @description Makes a retried send one signal; the header Idempotency-Key does the same. */
            idempotencyKey?: string | null;
            /** @description The name it is awaited under; `name` is the same. */
            signalName: string;
            /** @description The value; null without one. `payload` is the same. */
            signalValue?: unknown;
            signalValueRef?: components["schemas"]["PayloadRef"] | null;
        };
        /** @description What became of a signal; it is durable. */
        Signaled: {
            /** @description Whether it made a waiting run go on. */
            agentResumed: boolean;
            /** @description Whether an earlier send with the same key had stored it. */
            repeated: boolean;
            signaled: boolean;
            /** Format: uuid */
            signalId: string;
        };
        /** @description What to run. */
        Start: {
            /** @description The id or slug of a predefined agent, instead of `kind` and `input`: the run starts with what it says now. */
            agentDefinitionId?: string | null;
            budget?: components["schemas"]["GivenBudget"] | null;
            /** @description Of the runs of one key few are RUNNING at a time. */
            concurrencyKey?: string | null;
            /**
             * Format: int32
             * @description It begins to run where fewer runs of its key do; 1 without one.
             */
            concurrencyLimit?: number | null;
            /** @description Settings by name; of a predefined agent, beside and instead of its own. */
            config?: {
                [key: string]: unknown;
            } | null;
            /**
             * Format: double
             * @description Not to be claimed before this has passed.
             */
            delaySeconds?: number | null;
            /** @description Any string up to 200 characters, unique in the org: the same id with the same request is the same run. */
            id?: string | null;
            /** @description Its argument; null without one. */
            input?: unknown;
            inputRef?: components["schemas"]["PayloadRef"] | null;
            /** @description The agent; a definition has its own. */
            kind?: string | null;
            /** @description The machine that runs it, instead of a queue; empty for the only one there is. */
            machine?: string | null;
            /**
             * Format: int32
             * @description Steps after which the run pauses.
             */
            maxSteps?: number | null;
            /**
             * Format: int32
             * @description Recorded calls since the last checkpoint after which the run pauses.
             */
            maxTail?: number | null;
            /**
             * Format: int32
             * @description Steps in all after which resuming is refused; 500 for a run with `maxSteps` that says nothing else.
             */
            maxTotalSteps?: number | null;
            /** @description For filters: names and values, 16384 bytes together */
            metadata?: {
                [key: string]: string;
            };
            /** @description Models, as the agent takes them, such as `{"provider": "anthropic", "modelId": "claude-haiku-4-5"}`. */
            models?: unknown[] | null;
            /**
             * @description Whether its journal is kept: `full`, or `minimal` (`ephemeral`), which keeps its end, its usage and its signals until
             *     somebody else depends on more; `local` leaves its values on the machine that runs it.
             */
            persistence?: string | null;
            /**
             * Format: int32
             * @description Higher is claimed first.
             */
            priority?: number;
            /** @description The queue; `default` without one. */
            queue?: string | null;
            /**
             * Format: double
             * @description The longest it may wait for a worker to begin it.
             */
            startTimeoutSeconds?: number | null;
            /** @description How the agent is to behave, instead of an input. */
            systemPrompt?: string | null;
            /**
             * Format: double
             * @description The longest the run may take.
             */
            timeoutSeconds?: number | null;
            /** @description Tools, as the agent takes them. */
            tools?: unknown[] | null;
            /** @description What the user says to it. */
            userPrompt?: unknown;
        };
        /** @description What a run keeps under a name. */
        State: {
            /**
             * Format: int32
             * @description The checkpoint that keeps it; null before the first, and of the conversation.
             */
            checkpointSeq?: number | null;
            /** @description What was asked for; null for all of it. */
            key?: string | null;
            /** @description Where more of the conversation follows: the `cursor` of `/messages`. */
            nextCursor?: string | null;
            /** @description The state, or its member of that name; null where there is none yet. Of the conversation, the entries. */
            value: unknown;
        };
        /** @description How a run is to stop. */
        Stop: {
            /** @description Until when it may tidy up. */
            graceEndsAt: components["schemas"]["Moment"];
            /** @description `graceful` or `hard`. */
            mode: string;
        };
        /** @description What a run has come to so far. */
        Summary: {
            /** Format: int32 */
            checkpoints: number;
            /**
             * Format: double
             * @description US dollars, as far as prices are known; null where none is.
             */
            costUsd?: number | null;
            /** @description What it failed with. */
            lastError?: string | null;
            /**
             * Format: int64
             * @description Calls of models.
             */
            modelCalls: number;
            /** Format: int32 */
            steps: number;
            /**
             * Format: int64
             * @description Prompts, cached ones included, and answers.
             */
            tokens: number;
        };
        /** @description A unit of work of a run: the view that all show, its values, and older names that go on to be shown. */
        Task: components["schemas"]["TaskView"] & {
            /**
             * Format: uuid
             * @description An older name of `execution`.
             */
            agentExecutionId: string;
            /** @description An older name of `endedAt`. */
            completedAt?: string | null;
            /**
             * Format: uuid
             * @description An older name of `entry`.
             */
            entryId?: string | null;
            /** @description The message of `failure`. */
            error?: string | null;
            input?: unknown;
            inputRef?: components["schemas"]["PayloadRef"] | null;
            /** @description An older name of `op`. */
            opId: string;
            /** Format: uuid */
            orgId: string;
            output?: unknown;
            outputRef?: components["schemas"]["PayloadRef"] | null;
        };
        /** @description The tasks of a run. */
        Tasks: {
            /** @description Pass it as `cursor` for the next part; null at the end. */
            nextCursor?: string | null;
            tasks: components["schemas"]["Task"][];
        };
        /** @description A unit of work of a run, without its input and output. */
        TaskView: {
            /**
             * Format: int32
             * @description The attempt that runs or ran last, from 1.
             */
            attempt: number;
            /** @description When it was scheduled. */
            createdAt: components["schemas"]["Moment"];
            endedAt?: components["schemas"]["Moment"] | null;
            /**
             * Format: uuid
             * @description The entry at which the conversation stood when it was asked for.
             */
            entry?: string | null;
            /**
             * Format: uuid
             * @description The run.
             */
            execution: string;
            /**
             * Format: int32
             * @description Attempts that failed.
             */
            failedAttempts: number;
            failure?: components["schemas"]["Failure"] | null;
            /**
             * Format: uuid
             * @description Its UUID, which is also the idempotency key that its attempts carry.
             */
            id: string;
            /** @description What runs it. */
            kind: string;
            /** @description The op that scheduled it: what `resolve` takes. */
            op: string;
            /** @description `inline` beside its agent, or `queue` for any worker. */
            placement: string;
            /** @description What it last said of how far it is: `fraction` and `message`. */
            progress?: unknown;
            /** @description The queue it is in. */
            queue: string;
            /**
             * Format: int32
             * @description Failed attempts after which it is not tried again.
             */
            retries: number;
            /** @description `idempotent`, `at_most_once`, …: what a lost attempt may have done. */
            sideEffects: string;
            startedAt?: components["schemas"]["Moment"] | null;
            /**
             * @description PENDING, RUNNING, COMPLETED, FAILED, CANCELLED, IN_DOUBT or QUARANTINED.
             * @example COMPLETED
             */
            status: string;
        };
        /** @description A tool to pick. */
        Tool: {
            /** @description What it does, as models are told. */
            description: string;
            /** @description What a call does to the world: `read`, `write` or `exec`; approvals go by it. */
            effect: string;
            /** @description The JSON Schema of its arguments. */
            inputSchema: unknown;
            /** @description Its name, which definitions and runs take. */
            name: string;
            /** @description Where it runs: `host`, in the worker, or `mcp`, at an MCP server. */
            source: string;
        };
        /** @description A task as the call of a tool. */
        ToolCall: {
            arguments?: unknown;
            argumentsRef?: components["schemas"]["PayloadRef"] | null;
            /** Format: int32 */
            attempt: number;
            completedAt?: string | null;
            createdAt: string;
            /**
             * Format: double
             * @description How long its last attempt ran.
             */
            durationMs?: number | null;
            error?: string | null;
            /**
             * Format: uuid
             * @description The task.
             */
            id: string;
            /**
             * Format: uuid
             * @description The assistant message that asked for it; null where there was none.
             */
            messageId?: string | null;
            opId: string;
            result?: unknown;
            resultRef?: components["schemas"]["PayloadRef"] | null;
            /** @example COMPLETED */
            status: string;
            /**
             * Format: int32
             * @description The step of the run in which it was asked for, from 1; null where the agent counts no steps.
             */
            stepNumber?: number | null;
            toolName: string;
        };
        /** @description Work of one kind in a queue that no live worker serves. */
        Unserved: {
            /** @description The agent or the task. */
            kind: string;
            queue: string;
            /**
             * Format: int64
             * @description How many wait.
             */
            waiting: number;
        };
        /** @description What model calls cost, in all and by model. */
        Usage: {
            models: {
                [key: string]: components["schemas"]["ModelUsage"];
            };
            total: components["schemas"]["ModelUsage"];
        };
        /** @description What would make a waiting run go on: any of these. */
        Waits: {
            /** @description Signals by name. */
            signals: string[];
            /** @description Whether the end of a task does. */
            tasks: boolean;
            /** @description Whether the passing of time does. */
            timers: boolean;
        };
        /** @description A worker as its calls have shown it. */
        WorkerView: {
            /** @description Whether it is believed to live. */
            alive: boolean;
            /** @description Until when it is believed to live without another sign. */
            aliveUntil: string;
            /** Format: uuid */
            id: string;
            /** @description Host, process and name, for people. */
            name: string;
            /** @description The queues it said it polls. */
            queues: string[];
            /** @description Its last sign of life that was noted. */
            seenAt: string;
            /** @description What its claims asked for. */
            serves: components["schemas"]["Served"][];
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    health: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": unknown;
                };
            };
        };
    };
    ready: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": unknown;
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": unknown;
                };
            };
        };
    };
    list_definitions: {
        parameters: {
            query?: {
                cursor?: string;
                limit?: number;
            };
            header?: never;
            path: {
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Items_AgentDefinition"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    create_definition: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["DefinitionBody"];
            };
        };
        responses: {
            /** @description Created */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentDefinition"];
                };
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_definition: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The definition's id or slug */
                definition: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentDefinition"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    replace_definition: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The definition's id or slug */
                definition: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["DefinitionBody"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentDefinition"];
                };
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    delete_definition: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The definition's id or slug */
                definition: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No Content */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    list_runs: {
        parameters: {
            query?: {
                /** @description The same as `definition` */
                agent_id?: string;
                /** @description RFC 3339: started then or later */
                createdFrom?: string;
                /** @description RFC 3339: started before */
                createdUntil?: string;
                cursor?: string;
                /** @description Runs of this predefined agent: its id or slug */
                definition?: string;
                kind?: string;
                /** @description 1 to 1,000; 100 without one */
                limit?: number;
                /** @description Children of this run: its UUID or the id it was started with */
                parent?: string;
                /** @description The same as `parent` */
                parent_run_id?: string;
                queue?: string;
                /** @description All below this run in its family */
                root?: string;
                /** @description `true`: only runs that no other run has started */
                roots?: boolean;
                /** @description Any of these, repeated or with commas between */
                status?: string[];
            };
            header?: never;
            path: {
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Items_AgentExecution"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    start_run: {
        parameters: {
            query?: never;
            header?: {
                /** @description Names the run where the body has no id */
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Start"];
            };
        };
        responses: {
            /** @description Had been started */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentExecution"];
                };
            };
            /** @description Started; `Location` names the run */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentExecution"];
                };
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_run: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The run's UUID, or the id it was started with */
                id: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentExecution"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    delete_run: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The run's UUID, or the id it was started with */
                id: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentExecution"];
                };
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    cancel: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The run's UUID, or the id it was started with */
                id: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Cancel"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentExecution"];
                };
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    checkpoints: {
        parameters: {
            query?: {
                cursor?: string;
                limit?: number;
            };
            header?: never;
            path: {
                /** @description The run's UUID, or the id it was started with */
                id: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Checkpoints"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    checkpoint: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The run's UUID, or the id it was started with */
                id: string;
                /** @description `default`, or the org's id */
                org: string;
                /** @description The checkpoint's sequence */
                seq: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Checkpoint"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    latest_checkpoint: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The run's UUID, or the id it was started with */
                id: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Checkpoint"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    list_children: {
        parameters: {
            query?: {
                cursor?: string;
                /** @description 1 to 1,000; 100 without one */
                limit?: number;
            };
            header?: never;
            path: {
                /** @description The run's UUID, or the id it was started with */
                id: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Items_AgentExecution"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    remove_run: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The run's UUID, or the id it was started with */
                id: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No Content */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    divergence: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The run's UUID, or the id it was started with */
                id: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Decision"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentExecution"];
                };
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    entries: {
        parameters: {
            query?: {
                cursor?: string;
                limit?: number;
            };
            header?: never;
            path: {
                /** @description The run's UUID, or the id it was started with */
                id: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Items_Entry"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    fork: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The run's UUID, or the id it was started with */
                id: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Fork"];
            };
        };
        responses: {
            /** @description Created */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentExecution"];
                };
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    messages: {
        parameters: {
            query?: {
                cursor?: string;
                limit?: number;
            };
            header?: never;
            path: {
                /** @description The run's UUID, or the id it was started with */
                id: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Items_Entry"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    message: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description A UUID */
                entryId: string;
                /** @description The run's UUID, or the id it was started with */
                id: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Entry"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    resolve: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The run's UUID, or the id it was started with */
                id: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Resolve"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Task"];
                };
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    resume: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description The run's UUID, or the id it was started with */
                id: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Resume"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentExecution"];
                };
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    retry: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description The run's UUID, or the id it was started with */
                id: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Resume"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentExecution"];
                };
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    signal: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The run's UUID, or the id it was started with */
                id: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Signal"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Signaled"];
                };
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    state: {
        parameters: {
            query?: {
                /** @description A member of the state, or `messages` */
                key?: string;
            };
            header?: never;
            path: {
                /** @description The run's UUID, or the id it was started with */
                id: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["State"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    stream: {
        parameters: {
            query?: {
                /** @description The id of an event */
                after?: string;
            };
            header?: {
                /** @description As `after`, and stronger */
                "Last-Event-ID"?: string | null;
            };
            path: {
                /** @description The run's UUID, or the id it was started with */
                id: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": string;
                };
            };
            /** @description The run has ended, and nothing comes behind the id */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    stream_consolidated: {
        parameters: {
            query?: {
                /** @description The id of an event */
                after?: string;
            };
            header?: {
                /** @description As `after`, and stronger */
                "Last-Event-ID"?: string | null;
            };
            path: {
                /** @description The run's UUID, or the id it was started with */
                id: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": string;
                };
            };
            /** @description The run has ended, and nothing comes behind the id */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    tasks: {
        parameters: {
            query?: {
                cursor?: string;
                limit?: number;
            };
            header?: never;
            path: {
                /** @description The run's UUID, or the id it was started with */
                id: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Tasks"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    tool_calls: {
        parameters: {
            query?: {
                cursor?: string;
                limit?: number;
                status?: string;
                /** @description The same as `toolName` */
                tool_name?: string;
                toolName?: string;
            };
            header?: never;
            path: {
                /** @description The run's UUID, or the id it was started with */
                id: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Items_ToolCall"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    tool_call: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The run's UUID, or the id it was started with */
                id: string;
                /** @description `default`, or the org's id */
                org: string;
                /** @description A UUID */
                taskId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ToolCall"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_tree: {
        parameters: {
            query?: {
                /** @description The most runs below it, 1 to 1,000; 1,000 without one */
                limit?: number;
            };
            header?: never;
            path: {
                /** @description The run's UUID, or the id it was started with */
                id: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentExecutionTree"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    usage_of_run: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The run's UUID, or the id it was started with */
                id: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Usage"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    list_keys: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Items_KeyView"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    create_key: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CreateKey"];
            };
        };
        responses: {
            /** @description Created */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CreatedKey"];
                };
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    revoke_key: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description A UUID */
                keyId: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KeyView"];
                };
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    audit: {
        parameters: {
            query?: {
                cursor?: string;
                limit?: number;
            };
            header?: never;
            path: {
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Items_AuditView"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    list_machines: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Items_Machine"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    revoke_machine: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The machine's name */
                machine: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Machine"];
                };
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    approve_machine: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The code that the machine shows */
                code: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Approve"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ApprovedMachine"];
                };
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    models: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Items_Model"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    put_payload: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/octet-stream": number[];
            };
        };
        responses: {
            /** @description Created */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PayloadRef"];
                };
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_payload: {
        parameters: {
            query?: {
                /** @description Its number of bytes, as its reference says: saves looking for it */
                size?: number;
            };
            header?: never;
            path: {
                /** @description BLAKE3 of the bytes, in hex */
                hash: string;
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/octet-stream": number[];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    queues: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Items_QueueView"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    limit_queue: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `default`, or the org's id */
                org: string;
                /** @description The queue's name */
                queue: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["QueueLimit"];
            };
        };
        responses: {
            /** @description No Content */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    free_queue: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `default`, or the org's id */
                org: string;
                /** @description The queue's name */
                queue: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No Content */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    list_queue_limits: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Items_Queue"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    unserved: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Items_Unserved"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    list_schedules: {
        parameters: {
            query?: {
                cursor?: string;
                limit?: number;
            };
            header?: never;
            path: {
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Items_Schedule"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    put_schedule: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewSchedule"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Schedule"];
                };
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    get_schedule: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `default`, or the org's id */
                org: string;
                /** @description The schedule's id */
                schedule: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Schedule"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    delete_schedule: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `default`, or the org's id */
                org: string;
                /** @description The schedule's id */
                schedule: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description No Content */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    tools: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Items_Tool"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    usage_of_org: {
        parameters: {
            query?: {
                /** @description RFC 3339: started then or later; a day before `until` without one */
                from?: string;
                kind?: string;
                queue?: string;
                /** @description RFC 3339: started before; now without one. At most 31 days after `from` */
                until?: string;
            };
            header?: never;
            path: {
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RolledUp"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    workers: {
        parameters: {
            query?: {
                cursor?: string;
                limit?: number;
            };
            header?: never;
            path: {
                /** @description `default`, or the org's id */
                org: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Items_WorkerView"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    docs: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/html": unknown;
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    collect_pairing: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PairingState"];
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    request_pairing: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RequestPairing"];
            };
        };
        responses: {
            /** @description Created */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Pairing"];
                };
            };
            /** @description Refused or failed */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    metrics: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/openmetrics-text": string;
                };
            };
            /** @description Unauthorized */
            401: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": unknown;
                };
            };
            /** @description Forbidden */
            403: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": unknown;
                };
            };
            /** @description Too Many Requests */
            429: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": unknown;
                };
            };
            /** @description Service Unavailable */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": unknown;
                };
            };
        };
    };
    openapi: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
            /** @description The ETag that If-None-Match says still holds */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
}
