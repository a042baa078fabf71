//! The permissions that each call needs, in one table: a call that is not in it is refused. A protocol that is added to a server
//! brings a table of its own. `GET /metrics` is of no org and checks
//! its scope itself; on a port of its own it needs no token.

use crate::limits::Rate;
use axum::http::Method;
use flovyn_core::model::{Scope, Scopes};

/// The permission that a call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// None: it needs no token.
    Nothing,
    /// A known token.
    Token,
    /// To read runs.
    Read,
    /// To start runs and to change their course.
    Write,
    /// To send signals.
    Signal,
    /// To read the run that the path names: a token of that run, or of the user it is for, is enough.
    ReadRun,
    /// To send signals to the run that the path names: so may a token of that run, or of the user it is for, that speaks.
    SignalRun,
    /// To read a payload whose hash is known, and nobody learns a hash but from what he reads: any token of who reads or works.
    Fetch,
    /// To list runs: a token of a user lists those of that user.
    ListRuns,
    /// To take work of some queue; the call itself checks which.
    Work,
    /// To read runs, or to take work: workers read the runs that they hold.
    ReadOrWork,
    /// To write, or to take work: workers upload payloads.
    WriteOrWork,
    /// To create, list and revoke keys.
    Keys,
    /// To read the audit.
    Audit,
}

impl Need {
    /// Whether the scopes of a caller suffice.
    pub fn is_met(self, scopes: &Scopes) -> bool {
        match self {
            Self::Nothing | Self::Token => true,
            Self::Read => scopes.allows(&Scope::Read),
            Self::Write => scopes.allows(&Scope::Write),
            Self::Signal => scopes.allows(&Scope::Signal) || scopes.allows(&Scope::Write),
            Self::ReadRun => Self::Read.is_met(scopes) || scopes.narrow().next().is_some(),
            Self::SignalRun => Self::Signal.is_met(scopes) || scopes.narrow().any(speaks),
            Self::Fetch => Self::ReadRun.is_met(scopes) || scopes.serves(),
            Self::ListRuns => Self::Read.is_met(scopes) || scopes.users().next().is_some(),
            Self::Work => scopes.serves(),
            Self::ReadOrWork => scopes.allows(&Scope::Read) || scopes.serves(),
            Self::WriteOrWork => scopes.allows(&Scope::Write) || scopes.serves(),
            Self::Keys => scopes.allows(&Scope::Keys),
            Self::Audit => scopes.allows(&Scope::Audit),
        }
    }

    /// What is needed to do the same to every run.
    pub(crate) fn of_all_runs(self) -> Self {
        match self {
            Self::ReadRun | Self::ListRuns => Self::Read,
            Self::SignalRun => Self::Signal,
            Self::Fetch => Self::ReadOrWork,
            other => other,
        }
    }

    /// The wording of a refusal.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Token => "a token",
            Self::Read | Self::ReadRun | Self::ListRuns => "the scope exec:read",
            Self::Write => "the scope exec:write",
            Self::Signal | Self::SignalRun => "the scope exec:signal or exec:write",
            Self::Work => "the scope worker or worker:QUEUE",
            Self::ReadOrWork | Self::Fetch => "the scope exec:read or worker",
            Self::WriteOrWork => "the scope exec:write or worker",
            Self::Keys => "the scope keys",
            Self::Audit => "the scope audit:read",
        }
    }
}

/// Whether a scope of one run or of one user allows sending signals.
pub(crate) fn speaks(scope: &Scope) -> bool {
    matches!(scope, Scope::Run { speaks: true, .. } | Scope::User { speaks: true, .. })
}

/// The permission of a gRPC method, by its path.
pub(crate) fn need_of_method(path: &str) -> Option<Need> {
    match path.strip_prefix('/')?.split_once('/')? {
        ("grpc.health.v1.Health", _) => return Some(Need::Nothing),
        ("grpc.reflection.v1.ServerReflection", _) => return Some(Need::Token),
        _ => {}
    }
    let (service, method) = path.strip_prefix("/flovyn.v2.")?.split_once('/')?;
    Some(match (service, method) {
        ("Machines", "RequestPairing" | "CollectPairing") => Need::Nothing,
        ("Machines", "ApprovePairing" | "RevokeMachine") => Need::Keys,
        ("Machines", "ListMachines") => Need::Read,
        ("Machines", "AnnounceMachine") => Need::Work,
        ("Agents", "Identify") => Need::Token,
        ("Agents", "Start" | "Cancel" | "Remove" | "Resume" | "ResolveTask" | "ResolveDivergence" | "Fork") => {
            Need::Write
        }
        ("Agents", "Signal") => Need::Signal,
        ("Agents", "ListExecutions" | "ListSignals" | "ListTasks" | "ListCheckpoints" | "Journal" | "Unserved") => {
            Need::Read
        }
        ("Agents", "PutSchedule" | "DeleteSchedule" | "LimitQueue") => Need::Write,
        ("Agents", "GetSchedule" | "ListSchedules" | "ListQueueLimits") => Need::Read,
        ("Agents", "ListQueues" | "ListWorkers") => Need::Read,
        ("Agents", "RollUps" | "ListDescendants" | "LastEvent") => Need::Read,
        ("Agents", "ListEvents" | "Watch" | "GetTask" | "ListEntries" | "ListLatestEntries") => Need::Read,
        ("Agents", "GetExecution" | "Standings" | "GetEntry" | "Branch" | "GetPayload") => Need::ReadOrWork,
        ("Agents", "PutPayload") => Need::WriteOrWork,
        ("Worker", "Hints") => Need::ReadOrWork,
        ("Worker", "Register" | "Unregister" | "Heartbeat" | "PollAgents" | "PollTasks" | "LoadSegment") => Need::Work,
        ("Worker", "Commit" | "FactsAfter" | "ReadRows" | "ReportTask" | "Release" | "Publish") => Need::Work,
        _ => return None,
    })
}

/// The rate limit that calls of a method count for.
pub(crate) fn rate_of_method(path: &str) -> Option<Rate> {
    match path.strip_prefix("/flovyn.")? {
        "v2.Agents/Start" | "v2.Agents/Fork" => Some(Rate::Create),
        "v2.Agents/Signal" => Some(Rate::Signal),
        "v2.Worker/PollAgents" | "v2.Worker/PollTasks" => Some(Rate::Poll),
        _ => None,
    }
}

/// The rate limit that calls of a route count for, by its method and the path it is registered under.
pub(crate) fn rate_of_route(method: &Method, path: &str) -> Option<Rate> {
    match (method.as_str(), path.strip_prefix("/api/orgs/{org}/")?) {
        ("POST", "agent-executions" | "agent-executions/{id}/fork") => Some(Rate::Create),
        ("POST", "agent-executions/{id}/signal") => Some(Rate::Signal),
        // Of a predefined agent a message that starts a run counts as a start, too.
        ("POST", "agent-executions/{id}/ai-sdk" | "agent-executions/{id}/ag-ui") => Some(Rate::Signal),
        ("POST", "agent-executions/{id}/turns" | "agent-executions/{id}/turns/stream") => Some(Rate::Signal),
        ("POST", "agent-definitions/{definition}/ai-sdk" | "agent-definitions/{definition}/ag-ui") => {
            Some(Rate::Signal)
        }
        _ => None,
    }
}

/// The permission of a route of an org, by its method and the path it is registered under. `HEAD` needs that of `GET`.
pub(crate) fn need_of_route(method: &Method, path: &str) -> Option<Need> {
    let route = path.strip_prefix("/api/orgs/{org}/")?;
    let method = if method == Method::HEAD { "GET" } else { method.as_str() };
    ROUTES.iter().find(|row| (row.0, row.1) == (method, route)).map(|row| row.2)
}

/// Every route of an org with what it needs. A new one has no default: it is refused until it is here.
const ROUTES: &[(&str, &str, Need)] = &[
    ("POST", "agent-executions", Need::Write),
    ("GET", "agent-executions", Need::ListRuns),
    ("GET", "agent-executions/{id}", Need::ReadRun),
    ("DELETE", "agent-executions/{id}", Need::Write),
    ("GET", "agent-executions/{id}/children", Need::ReadRun),
    ("GET", "agent-executions/{id}/tree", Need::ReadRun),
    ("POST", "agent-executions/{id}/cancel", Need::Write),
    ("POST", "agent-executions/{id}/delete", Need::Write),
    ("POST", "agent-executions/{id}/signal", Need::SignalRun),
    ("POST", "agent-executions/{id}/resume", Need::Write),
    ("POST", "agent-executions/{id}/retry", Need::Write),
    ("POST", "agent-executions/{id}/resolve", Need::Write),
    ("POST", "agent-executions/{id}/divergence", Need::Write),
    ("POST", "agent-executions/{id}/fork", Need::Write),
    ("GET", "agent-executions/{id}/entries", Need::ReadRun),
    ("GET", "agent-executions/{id}/messages", Need::ReadRun),
    ("GET", "agent-executions/{id}/messages/{entryId}", Need::ReadRun),
    ("GET", "agent-executions/{id}/events", Need::ReadRun),
    ("GET", "agent-executions/{id}/tasks", Need::ReadRun),
    ("GET", "agent-executions/{id}/tool-calls", Need::ReadRun),
    ("GET", "agent-executions/{id}/tool-calls/{taskId}", Need::ReadRun),
    ("GET", "agent-executions/{id}/checkpoints", Need::ReadRun),
    ("GET", "agent-executions/{id}/checkpoints/latest", Need::ReadRun),
    ("GET", "agent-executions/{id}/checkpoints/{seq}", Need::ReadRun),
    ("GET", "agent-executions/{id}/state", Need::ReadRun),
    ("GET", "agent-executions/{id}/usage", Need::ReadRun),
    ("GET", "agent-executions/{id}/stream", Need::ReadRun),
    ("GET", "agent-executions/{id}/stream/consolidated", Need::ReadRun),
    ("POST", "agent-executions/{id}/turns", Need::SignalRun),
    ("POST", "agent-executions/{id}/turns/stream", Need::SignalRun),
    ("GET", "agent-executions/{id}/turns/{turnId}", Need::ReadRun),
    ("POST", "agent-executions/{id}/ai-sdk", Need::SignalRun),
    ("POST", "agent-executions/{id}/ag-ui", Need::SignalRun),
    ("GET", "usage", Need::Read),
    ("PUT", "payloads", Need::WriteOrWork),
    ("GET", "payloads/{hash}", Need::Fetch),
    ("POST", "agent-definitions", Need::Write),
    ("GET", "agent-definitions", Need::Read),
    ("GET", "agent-definitions/{definition}", Need::Read),
    ("PUT", "agent-definitions/{definition}", Need::Write),
    ("DELETE", "agent-definitions/{definition}", Need::Write),
    ("POST", "agent-definitions/{definition}/ai-sdk", Need::Write),
    ("POST", "agent-definitions/{definition}/ag-ui", Need::Write),
    ("GET", "models", Need::Read),
    ("GET", "tools", Need::Read),
    ("GET", "queues", Need::Read),
    ("GET", "queues/unserved", Need::Read),
    ("GET", "queues/limits", Need::Read),
    ("PUT", "queues/{queue}", Need::Write),
    ("DELETE", "queues/{queue}", Need::Write),
    ("GET", "workers", Need::Read),
    ("GET", "audit", Need::Audit),
    ("POST", "browser-tokens", Need::Read),
    ("GET", "api-keys", Need::Keys),
    ("POST", "api-keys", Need::Keys),
    ("DELETE", "api-keys/{keyId}", Need::Keys),
    ("GET", "machines", Need::Read),
    ("POST", "machines/pairings/{code}/approve", Need::Keys),
    ("DELETE", "machines/{machine}", Need::Keys),
    ("POST", "schedules", Need::Write),
    ("GET", "schedules", Need::Read),
    ("GET", "schedules/{schedule}", Need::Read),
    ("DELETE", "schedules/{schedule}", Need::Write),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Every method that the wire has is in the table.
    #[test]
    fn every_method_has_a_need() {
        let mut methods = 0;
        for (package, text) in [
            ("flovyn.v2", include_str!("../../proto/flovyn/v2/agents.proto")),
            ("flovyn.v2", include_str!("../../proto/flovyn/v2/machines.proto")),
            ("flovyn.v2", include_str!("../../proto/flovyn/v2/worker.proto")),
        ] {
            let mut service = "";
            for line in text.lines().map(str::trim) {
                service = line.strip_prefix("service ").and_then(|rest| rest.split(' ').next()).unwrap_or(service);
                let Some(method) = line.strip_prefix("rpc ").and_then(|rest| rest.split('(').next()) else { continue };
                assert!(
                    need_of_method(&format!("/{package}.{service}/{method}")).is_some(),
                    "{package}.{service}/{method}"
                );
                methods += 1;
            }
        }
        assert!(methods > 35);
        assert_eq!(need_of_method("/flovyn.v2.Agents/Unheard"), None);
        assert_eq!(need_of_method("/grpc.health.v1.Health/Check"), Some(Need::Nothing));
        assert_eq!(need_of_method("/other.Service/Check"), None);
    }

    /// Every route that is served is in the table once, and every row is a route that is served.
    #[test]
    fn every_route_has_a_need() {
        let served = serde_json::to_value(crate::http::routes().into_openapi()).unwrap();
        let mut routes = Vec::new();
        for (path, item) in served["paths"].as_object().unwrap() {
            let Some(route) = path.strip_prefix("/api/orgs/{org}/") else { continue };
            routes.extend(item.as_object().unwrap().keys().map(|method| format!("{} {route}", method.to_uppercase())));
        }
        let mut rows: Vec<_> = ROUTES.iter().map(|(method, route, _)| format!("{method} {route}")).collect();
        routes.sort();
        rows.sort();
        assert_eq!(routes, rows);
        // Every method and route with a rate limit is also in the table of permissions.
        let counted = |row: &&(&str, &str, Need)| {
            rate_of_route(&row.0.parse().unwrap(), &format!("/api/orgs/{{org}}/{}", row.1)).is_some()
        };
        assert_eq!(ROUTES.iter().filter(counted).count(), 9);
    }

    #[test]
    fn a_route_needs_what_it_does() {
        let need = |method: Method, route: &str| need_of_route(&method, &format!("/api/orgs/{{org}}/{route}"));
        assert_eq!(need(Method::GET, "agent-executions/{id}/stream"), Some(Need::ReadRun));
        assert_eq!(need(Method::POST, "agent-executions/{id}/signal"), Some(Need::SignalRun));
        for (method, route) in [(Method::POST, "agent-executions"), (Method::DELETE, "agent-executions/{id}")] {
            assert_eq!(need(method, route), Some(Need::Write), "{route}");
        }
        assert_eq!(need(Method::POST, "api-keys"), Some(Need::Keys));
        assert_eq!(need(Method::GET, "audit"), Some(Need::Audit));
        assert_eq!(need(Method::HEAD, "agent-executions"), Some(Need::ListRuns));
        for (method, route) in [
            (Method::PUT, "agent-executions/{id}"),
            (Method::GET, "agent-executions/{id}/unheard"),
            (Method::POST, "agent-executions/{id}/unheard"),
            (Method::DELETE, "schedules"),
        ] {
            assert_eq!(need(method, route), None, "{route}");
        }
        assert_eq!(need_of_route(&Method::GET, "/elsewhere"), None);
    }

    #[test]
    fn what_makes_work_is_counted() {
        let route = |method: Method, route: &str| rate_of_route(&method, &format!("/api/orgs/{{org}}/{route}"));
        assert_eq!(route(Method::POST, "agent-executions"), Some(Rate::Create));
        assert_eq!(route(Method::GET, "agent-executions"), None);
        assert_eq!(route(Method::POST, "agent-executions/{id}/signal"), Some(Rate::Signal));
        for (method, rate) in [("v2.Agents/Start", Rate::Create), ("v2.Worker/PollTasks", Rate::Poll)] {
            assert_eq!(rate_of_method(&format!("/flovyn.{method}")), Some(rate), "{method}");
        }
        assert_eq!(rate_of_method("/flovyn.v2.Worker/Commit"), None);
    }

    #[test]
    fn roles_meet_needs() {
        let met = |role: &str, need: Need| need.is_met(&role.parse().unwrap());
        assert!(met("viewer", Need::Read) && !met("viewer", Need::Signal) && !met("viewer", Need::Work));
        assert!(met("member", Need::Write) && met("member", Need::Signal) && !met("member", Need::Work));
        assert!(met("worker:gpu", Need::Work) && met("worker", Need::ReadOrWork) && !met("worker", Need::Read));
        assert!(met("exec:signal", Need::Signal) && !met("exec:signal", Need::Write));
        let run = "run:018f4d5e-0000-7000-8000-000000000001:read";
        assert!(met(run, Need::ReadRun) && !met(run, Need::SignalRun) && !met(run, Need::ListRuns));
        assert!(met("user:ann:speak", Need::SignalRun) && met("user:ann:read", Need::ListRuns));
        for need in [Need::Read, Need::Write, Need::Signal, Need::Work, Need::ReadOrWork, Need::Keys, Need::Audit] {
            assert!(!met(&format!("user:ann:speak {run}"), need), "{need:?}");
        }
    }
}
