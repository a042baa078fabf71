//! The log as JSON: one object a line, with `timestamp`, `level`, `target`, `message`, `fields`, and `spans` where there are any.

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::fmt;
use tracing::field::{Field, Visit};
use tracing::span::Record;
use tracing::{Event, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// Writes events and the fields of spans.
pub(super) struct Json;

/// One line of the log.
pub(super) fn line(level: &str, target: &str, message: &str, fields: Map<String, Value>, spans: Vec<Value>) -> Value {
    let mut line = json!({
        "timestamp": format!("{:.6}", Timestamp::now()),
        "level": level,
        "target": target,
        "message": message,
        "fields": fields,
    });
    if let (Some(line), false) = (line.as_object_mut(), spans.is_empty()) {
        line.insert("spans".to_owned(), spans.into());
    }
    line
}

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut recorded = Fields::default();
        event.record(&mut recorded);
        let mut spans = Vec::new();
        for span in context.event_scope().into_iter().flat_map(|scope| scope.from_root()) {
            let formatted = span.extensions();
            let mut fields =
                formatted.get::<FormattedFields<N>>().map(|formatted| read(&formatted.fields)).unwrap_or_default();
            fields.insert("name".to_owned(), span.name().into());
            spans.push(fields.into());
        }
        let (level, target) = (event.metadata().level().as_str(), event.metadata().target());
        writeln!(writer, "{}", line(level, target, &recorded.message, recorded.fields, spans))
    }
}

impl<'writer> FormatFields<'writer> for Json {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut recorded = Fields::default();
        fields.record(&mut recorded);
        write!(writer, "{}", Value::Object(recorded.fields))
    }

    /// What a span learns later is one object with what it had.
    fn add_fields(&self, current: &'writer mut FormattedFields<Self>, fields: &Record<'_>) -> fmt::Result {
        let mut recorded = Fields { fields: read(&current.fields), ..Fields::default() };
        fields.record(&mut recorded);
        current.fields = Value::Object(recorded.fields).to_string();
        Ok(())
    }
}

fn read(fields: &str) -> Map<String, Value> {
    serde_json::from_str(fields).unwrap_or_default()
}

/// The fields of an event, its message apart.
#[derive(Default)]
struct Fields {
    message: String,
    fields: Map<String, Value>,
}

impl Fields {
    fn insert(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(message)) => self.message = message,
            (name, value) => drop(self.fields.insert(name.to_owned(), value)),
        }
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.insert(field, format!("{value:?}").into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::{Arc, Mutex};
    use tracing::{info, info_span, warn};

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_is_one_object_whatever_was_said() {
        let written = Written::default();
        let to = written.clone();
        let recorded = tracing_subscriber::fmt().with_writer(move || to.clone()).fmt_fields(Json).event_format(Json);
        tracing::subscriber::with_default(recorded.finish(), || {
            let span = info_span!("run", run = 7, status = tracing::field::Empty);
            span.record("status", "RUNNING");
            span.in_scope(|| warn!(level = "high", seconds = 1.5, lost = true, error = %"a \"b\"\nc", "two\nlines"));
            info!("plain");
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
        assert_eq!(lines.len(), 2, "{text}");
        let first = &lines[0];
        assert_eq!((&first["level"], &first["message"]), (&json!("WARN"), &json!("two\nlines")), "{text}");
        let fields = json!({ "level": "high", "seconds": 1.5, "lost": true, "error": "a \"b\"\nc" });
        assert_eq!(first["fields"], fields, "{text}");
        assert_eq!(first["spans"], json!([{ "name": "run", "run": 7, "status": "RUNNING" }]), "{text}");
        first["timestamp"].as_str().unwrap().parse::<Timestamp>().unwrap();
        assert_eq!((&lines[1]["message"], lines[1].get("spans")), (&json!("plain"), None), "{text}");
        assert!(lines[1]["target"].as_str().unwrap().contains("json"), "{text}");
    }
}
