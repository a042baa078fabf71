//! Which crate may depend on which, by their manifests.

use super::sources;

/// Each crate with those that it is built on. What only its tests use does not count.
const CRATES: &[(&str, &[&str])] = &[
    ("flovyn-core-macros", &[]),
    ("flovyn-proto", &[]),
    ("flovyn-core", &["flovyn-core-macros", "flovyn-proto"]),
    // It uses the core as any user would.
    ("flovyn-toolkit", &["flovyn-core"]),
    // It never runs agent code; what it lists of the toolkit it is given by whoever starts it.
    ("flovyn-server", &["flovyn-core", "flovyn-proto"]),
    // A protocol that can be dropped: nothing but the command knows of it.
    ("flovyn-server-v1", &["flovyn-core", "flovyn-proto", "flovyn-server"]),
    ("flovyn-cli", &["flovyn-core", "flovyn-server", "flovyn-server-v1", "flovyn-toolkit"]),
    ("flovyn-python", &["flovyn-cli", "flovyn-core", "flovyn-toolkit"]),
    ("flovyn-node", &["flovyn-cli", "flovyn-core", "flovyn-toolkit"]),
];

/// Crates that nobody builds on.
const LEAVES: &[&str] =
    &["flovyn-core-tests", "flovyn-examples", "flovyn-tests", "flovyn-benches", "flovyn-fuzz", "acp-agent"];

#[test]
fn crates_depend_on_lower_ones_only() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for (name, manifest) in sources(&["Cargo.toml"]) {
        let Some(krate) = manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"')) else {
            continue;
        };
        if LEAVES.contains(&krate) {
            continue;
        }
        let Some((_, allowed)) = CRATES.iter().find(|(listed, _)| *listed == krate) else {
            wrong.push(format!("{name}: {krate} is in no list"));
            continue;
        };
        seen += 1;
        for used in built_on(&manifest).into_iter().filter(|used| !allowed.contains(used)) {
            wrong.push(format!("{name}: {krate} depends on {used}"));
        }
    }
    assert!(wrong.is_empty(), "edges between crates that are not allowed: {wrong:#?}");
    assert_eq!(seen, CRATES.len(), "a crate of the list is no longer there");
}

/// The crates of this repository that a manifest names, but for those of its tests.
fn built_on(manifest: &str) -> Vec<&str> {
    let mut counts = false;
    let mut used = Vec::new();
    for line in manifest.lines() {
        if let Some(section) = line.strip_prefix('[') {
            counts = section.ends_with("dependencies]") && !section.contains("dev-dependencies");
        }
        let name = line.split([' ', '.', '=']).next().unwrap_or_default();
        if counts && name.starts_with("flovyn-") {
            used.push(name);
        }
    }
    used
}

#[test]
fn an_edge_is_seen_however_it_is_written() {
    let manifest = "[package]\nname = \"flovyn-a\"\n[dependencies]\nflovyn-b.workspace = true\n\
        flovyn-c = { workspace = true }\n[dev-dependencies]\nflovyn-d.workspace = true\n\
        [target.'cfg(unix)'.dependencies]\nflovyn-e = \"1\"\n[build-dependencies]\nflovyn-f=\"1\"\n[features]\nflovyn-g = []\n";
    assert_eq!(built_on(manifest), ["flovyn-b", "flovyn-c", "flovyn-e", "flovyn-f"]);
}
