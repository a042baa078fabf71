//! The layers of the console and of the package that it shares with other people's front ends: the reducer at the bottom, which
//! knows neither React nor the server; the router on top.

use super::sources;

/// A folder of sources, with the layers in it.
struct Layered {
    root: &'static str,
    /// Its folders, lowest first.
    folders: &'static [(u8, &'static str)],
    /// Files beside them.
    beside: &'static [(u8, &'static str)],
}

const FRONT_ENDS: &[Layered] = &[
    Layered {
        root: "react/src/",
        folders: &[(0, "transcript"), (1, "client"), (2, "front_ends"), (2, "hooks"), (3, "chat")],
        beside: &[(4, "index.ts")],
    },
    // What an address says is read by screens; the other files stand on everything.
    Layered {
        root: "web/src/",
        folders: &[(1, "api"), (2, "live"), (2, "parts"), (3, "screens"), (4, "frame")],
        beside: &[(2, "search.ts"), (5, "router.tsx"), (6, "main.tsx")],
    },
];

#[test]
fn folders_of_front_ends_import_lower_layers_only() {
    let (mut wrong, mut imports) = (Vec::new(), 0);
    for (name, text) in sources(&[".ts", ".tsx"]) {
        let layered = FRONT_ENDS.iter().find_map(|layers| Some((layers, name.strip_prefix(layers.root)?)));
        let Some((layers, path)) = layered else { continue };
        let layer = |path: &str| {
            let folder = path.split('/').next().unwrap_or_default();
            layers.folders.iter().chain(layers.beside).find(|(_, name)| *name == folder)
        };
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
            if *folder == "client" && !target.starts_with('.') {
                wrong.push(format!("{name} imports {target}: what talks to a server needs no React"));
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
            let used =
                layer(rest).or_else(|| layers.beside.iter().find(|(_, file)| file.starts_with(&format!("{rest}."))));
            match used {
                Some((theirs, other)) if theirs < mine || (theirs == mine && other == folder) => {}
                Some(_) => wrong.push(format!("{name} imports {target}, which is not below it")),
                None => wrong.push(format!("{name} imports {target}, which is of no layer")),
            }
        }
    }
    assert!(wrong.is_empty(), "imports of the front ends that go upwards: {wrong:#?}");
    assert!(imports > 100, "only {imports} imports were seen");
}
