//! The layers of the server: what it stands on, what a call means, and the transports.

use super::{is_test, sources};

/// The modules of the server, lowest first. A module imports lower layers and its own.
const LAYERS: &[(u8, &[&str])] = &[
    // Leaves: one request, one file, one signal.
    (0, &["access", "catalog", "certificate", "disk", "nats", "request_id", "session", "shutdown"]),
    (1, &["faults", "limits", "metrics", "oidc", "otlp", "refusal_log"]),
    // How much, who may, and by which connection.
    (2, &["addresses", "config", "org_limiter", "policy"]),
    (3, &["listen", "throttle"]),
    // What a call means.
    (4, &["extensions", "options", "service"]),
    (5, &["grpc", "rest"]),
    (6, &["sse"]),
    (7, &["http"]),
    (8, &["serving"]),
    (9, &["startup_log"]),
    (10, &["dev", "replica"]),
];

#[test]
fn modules_of_the_server_import_lower_layers_only() {
    let layer = |module: &str| LAYERS.iter().find(|(_, modules)| modules.contains(&module)).map(|(layer, _)| *layer);
    let (mut wrong, mut imports) = (Vec::new(), 0);
    for (name, text) in sources(&[".rs"]) {
        let Some(path) = name.strip_prefix("server/src/").filter(|path| *path != "lib.rs" && !is_test(&name)) else {
            continue;
        };
        let module = path.split(['/', '.']).next().unwrap_or_default();
        let Some(mine) = layer(module) else {
            wrong.push(format!("{name} is of no layer"));
            continue;
        };
        for line in text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")) {
            for used in line.split("crate::").skip(1) {
                let used = used.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
                imports += 1;
                match layer(used) {
                    Some(theirs) if theirs <= mine => {}
                    Some(_) => wrong.push(format!("{name} (layer {mine}) uses {used}: {}", line.trim())),
                    // What `server/src/lib.rs` shows to others comes from a module, which has a layer.
                    None => wrong.push(format!("{name} names no module: {}", line.trim())),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "imports of the server that go upwards: {wrong:#?}");
    assert!(imports > 100, "only {imports} imports were seen");
}

/// Calls of the storage that change a run, a setting or who may call: the audit knows of them.
const ACTS: &[&str] = &[
    "create_execution",
    "store_signal",
    "request_cancel",
    "remove_execution",
    "resume",
    "resolve_task",
    "resolve_divergence",
    "fork",
    "put_schedule",
    "delete_schedule",
    "limit_queue",
    "create_definition",
    "replace_definition",
    "delete_definition",
    "create_key",
    "revoke_key",
    "record",
];

/// A transport that called the storage for these would have another truth about what they mean, and might forget the audit.
#[test]
fn transports_leave_acts_to_the_service() {
    let (mut wrong, mut acts) = (Vec::new(), 0);
    for (name, text) in sources(&[".rs"]) {
        let Some((module, _)) = name.strip_prefix("server/src/").and_then(|path| path.split_once('/')) else {
            continue;
        };
        let code: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let called = ACTS.iter().filter(|act| {
            ["storage.", "storage()", "directory.", "server_side()?."]
                .iter()
                .any(|of| code.contains(&format!("{of}{act}(")))
        });
        match module {
            "grpc" | "rest" | "sse" | "http" => wrong.extend(called.map(|act| format!("{name} calls {act}"))),
            _ => acts += called.count(),
        }
    }
    assert!(wrong.is_empty(), "acts past `server/src/service`: {wrong:#?}");
    assert_eq!(acts, ACTS.len(), "the service does each of them, once");
}
