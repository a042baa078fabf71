//! The layers of the console: the reducer at the bottom, which knows neither React nor the server; the router on top.

use super::sources;

/// The folders of `web/src`, lowest first.
const LAYERS: &[(u8, &str)] = &[(0, "transcript"), (1, "api"), (2, "live"), (2, "parts"), (3, "screens"), (4, "frame")];
/// Files beside these folders: what an address says is read by screens, the rest stands on everything.
const BESIDE: &[(u8, &str)] = &[(2, "search.ts"), (5, "router.tsx"), (6, "main.tsx")];

#[test]
fn folders_of_the_console_import_lower_layers_only() {
    let layer = |path: &str| {
        let folder = path.split('/').next().unwrap_or_default();
        LAYERS.iter().find(|(_, name)| *name == folder).or_else(|| BESIDE.iter().find(|(_, name)| *name == folder))
    };
    let (mut wrong, mut imports) = (Vec::new(), 0);
    for (name, text) in sources(&[".ts", ".tsx"]) {
        let Some(path) = name.strip_prefix("web/src/") else { continue };
        let Some((mine, folder)) = layer(path) else {
            wrong.push(format!("{name} is of no layer"));
            continue;
        };
        let depth = path.matches('/').count();
        for line in text.lines() {
            let Some((_, from)) = line.split_once("from \"").or_else(|| line.split_once("import(\"")) else { continue };
            let target = from.split('"').next().unwrap_or_default();
            if *folder == "transcript" && !target.starts_with("./") {
                wrong.push(format!("{name} imports {target}: the reducer stands alone"));
            }
            if !target.starts_with('.') {
                continue;
            }
            let up = target.matches("../").count();
            let rest = target.trim_start_matches("./").trim_start_matches("../");
            // Within its own folder.
            if up < depth {
                continue;
            }
            imports += 1;
            let used = layer(rest).or_else(|| BESIDE.iter().find(|(_, file)| file.starts_with(&format!("{rest}."))));
            match used {
                Some((theirs, other)) if theirs < mine || (theirs == mine && other == folder) => {}
                Some(_) => wrong.push(format!("{name} imports {target}, which is not below it")),
                None => wrong.push(format!("{name} imports {target}, which is of no layer")),
            }
        }
    }
    assert!(wrong.is_empty(), "imports of the console that go upwards: {wrong:#?}");
    assert!(imports > 100, "only {imports} imports were seen");
}
