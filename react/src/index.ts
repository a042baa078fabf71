// The boundary of the package: hooks and components for React, and all that they are made of.
"use client";

export { Chat, type ChatProps } from "./chat/chat.js";
export { englishLabels, type ChatLabels } from "./chat/labels.js";
export { FlovynProvider, useFlovynClient, type FlovynProviderProps } from "./hooks/provider.js";
export { useApprovals, type UseApprovals, type UseApprovalsOptions } from "./hooks/use_approvals.js";
export { useRun, type UseRun, type UseRunOptions } from "./hooks/use_run.js";
export * from "./client/index.js";
export * from "./transcript/index.js";
