//! The layers of the server: what it stands on, what a call means, and the transports.

use super::{is_test, sources};

/// The modules of the server, lowest first. A module imports lower layers and its own.
const LAYERS: &[(u8, &[&str])] = &[
    // Leaves: one request, one file, one signal.
    (0, &["access", "catalog", "certificate", "disk", "nats", "request_id", "shutdown"]),
    (1, &["faults", "limits", "metrics", "otlp", "refusal_log"]),
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
                    // What `lib.rs` shows to others comes from a module, which has a layer.
                    None => wrong.push(format!("{name} names no module: {}", line.trim())),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "imports of the server that go upwards: {wrong:#?}");
    assert!(imports > 100, "only {imports} imports were seen");
}
