//! The permissions that each call needs: its workers take work of one queue and act on runs of that queue. A method that is not
//! in the table is refused.

use flovyn_server::protocol::{Need, Rate};

/// The service and the method of a path, where they are of this protocol.
fn method(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix("/flovyn.v1.")?.split_once('/')
}

/// The permission of a method, by its path.
pub(super) fn need_of_method(path: &str) -> Option<Need> {
    let (service, method) = method(path)?;
    Some(match (service, method) {
        ("WorkerLifecycle", "RegisterWorker" | "SendHeartbeat") => Need::Work,
        ("TaskExecution", "PollTask" | "CompleteTask" | "FailTask" | "CancelTask") => Need::Work,
        ("TaskExecution", "ReportProgress" | "LogMessage" | "StreamTaskData" | "Heartbeat") => Need::Work,
        ("AgentDispatch", "PollAgent" | "ResumeAgent" | "SuspendAgent" | "CompleteAgent" | "FailAgent") => Need::Work,
        ("AgentDispatch", "GetEntries" | "AppendEntry" | "GetLatestCheckpoint" | "SubmitCheckpoint") => Need::Work,
        ("AgentDispatch", "ScheduleAgentTask" | "CancelAgentTask" | "StreamAgentData") => Need::Work,
        ("AgentDispatch", "GetAgentTaskResult" | "GetAgentTaskResults" | "GetAgentTaskCount") => Need::Work,
        ("AgentDispatch", "ConsumeSignals" | "HasSignal" | "SendParentSignal" | "SendChildSignal") => Need::Work,
        ("AgentDispatch", "SpawnChildAgent" | "PollChildEvents") => Need::Work,
        ("AgentDispatch", "SignalAgent") => Need::Signal,
        _ => return None,
    })
}

/// The rate limit that calls of a method count for.
pub(super) fn rate_of_method(path: &str) -> Option<Rate> {
    match method(path)? {
        ("AgentDispatch", "SpawnChildAgent") => Some(Rate::Create),
        ("AgentDispatch", "SignalAgent") => Some(Rate::Signal),
        ("AgentDispatch", "PollAgent") | ("TaskExecution", "PollTask") => Some(Rate::Poll),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every method that the wire has is in the table.
    #[test]
    fn every_method_has_a_need() {
        let mut methods = 0;
        for text in
            [include_str!("../../proto/flovyn/v1/agent.proto"), include_str!("../../proto/flovyn/v1/flovyn.proto")]
        {
            let mut service = "";
            for line in text.lines().map(str::trim) {
                service = line.strip_prefix("service ").and_then(|rest| rest.split(' ').next()).unwrap_or(service);
                let Some(method) = line.strip_prefix("rpc ").and_then(|rest| rest.split('(').next()) else { continue };
                assert!(need_of_method(&format!("/flovyn.v1.{service}/{method}")).is_some(), "{service}/{method}");
                methods += 1;
            }
        }
        assert!(methods > 25);
        for unknown in ["/flovyn.v1.WorkflowDispatch/PollWorkflow", "/flovyn.v2.Agents/Start", "/other.Service/Check"] {
            assert_eq!((need_of_method(unknown), rate_of_method(unknown)), (None, None), "{unknown}");
        }
    }

    #[test]
    fn what_makes_work_is_counted() {
        for (method, rate) in [
            ("AgentDispatch/SpawnChildAgent", Some(Rate::Create)),
            ("AgentDispatch/SignalAgent", Some(Rate::Signal)),
            ("AgentDispatch/PollAgent", Some(Rate::Poll)),
            ("TaskExecution/PollTask", Some(Rate::Poll)),
            ("AgentDispatch/SubmitCheckpoint", None),
        ] {
            assert_eq!(rate_of_method(&format!("/flovyn.v1.{method}")), rate, "{method}");
        }
    }
}
