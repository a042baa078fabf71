//! The argument of `--output-schema`: a JSON Schema, written out or in a file.

use flovyn_toolkit::react::OutputSpec;
use serde_json::Value;

/// Reads the argument: an object of JSON, or the name of a file with one.
pub(super) fn of_argument(argument: &str) -> Result<OutputSpec, String> {
    let is_written_out = argument.trim_start().starts_with('{');
    let text = match is_written_out {
        true => argument.to_owned(),
        false => std::fs::read_to_string(argument).map_err(|error| {
            format!("the file cannot be read: {error}; give a file with a JSON Schema, or the schema")
        })?,
    };
    // Files of Windows may begin with a mark of their byte order.
    let schema: Value = serde_json::from_str(text.trim_start_matches('\u{feff}'))
        .map_err(|error| format!("the JSON Schema is no JSON: {error}"))?;
    let spec = OutputSpec::new(schema);
    spec.check().map_err(|error| error.message().to_owned())?;
    Ok(spec)
}
