//! How values are sent to PostgreSQL, and statements that write many rows at once.
//!
//! A [`Set`] writes any number of rows by one statement: each column is sent as one array, and `UNNEST` makes rows of
//! the arrays. So the cost of a transaction grows with the number of tables it touches, not with the number of runs
//! that share it. A single row is sent without arrays, which costs the database less.

pub(super) use crate::storage::sql::values::{Value, row};
use bytes::{BufMut, BytesMut};
use std::collections::HashMap;
use std::error::Error;
use std::sync::OnceLock;
use tokio_postgres::types::{Format, IsNull, Kind, ToSql, Type, to_sql_checked};

type Encoded = Result<IsNull, Box<dyn Error + Sync + Send>>;

impl Value {
    fn encode(&self, ty: &Type, out: &mut BytesMut) -> Encoded {
        match self {
            Value::Null => return Ok(IsNull::Yes),
            Value::Bool(value) => out.put_u8(u8::from(*value)),
            Value::Int(value) if *ty == Type::INT8 => out.put_i64(*value),
            Value::Int(value) if *ty == Type::INT4 => out.put_i32(i32::try_from(*value)?),
            Value::Int(value) if *ty == Type::INT2 => out.put_i16(i16::try_from(*value)?),
            Value::Id(id) => out.put_slice(id.as_bytes()),
            Value::Text(text) => out.put_slice(text.as_bytes()),
            Value::Bytes(bytes) => out.put_slice(bytes),
            Value::List(values) => return array(values.iter(), values.len(), ty, out),
            Value::Int(_) => return Err(format!("a number cannot be a value of type {ty}").into()),
        }
        Ok(IsNull::No)
    }
}

impl ToSql for Value {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Encoded {
        self.encode(ty, out)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Binary
    }

    to_sql_checked!();
}

/// The binary form of a one-dimensional array.
fn array<'a>(values: impl Iterator<Item = &'a Value>, length: usize, ty: &Type, out: &mut BytesMut) -> Encoded {
    let Kind::Array(element) = ty.kind() else { return Err(format!("a list cannot be a value of type {ty}").into()) };
    out.put_i32(1);
    out.put_i32(1);
    out.put_u32(element.oid());
    out.put_i32(i32::try_from(length)?);
    out.put_i32(1);
    for value in values {
        let start = out.len();
        out.put_i32(-1);
        if let IsNull::No = value.encode(element, out)? {
            let size = i32::try_from(out.len() - start - 4)?;
            out[start..start + 4].copy_from_slice(&size.to_be_bytes());
        }
    }
    Ok(IsNull::No)
}

/// One column of the rows of a statement.
#[derive(Debug)]
pub(super) enum Column<'a> {
    /// The value of the only row.
    One(&'a Value),
    /// An array with the value of each row.
    Each { rows: &'a [Vec<Value>], index: usize },
}

impl ToSql for Column<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Encoded {
        match self {
            Self::One(value) => value.encode(ty, out),
            Self::Each { rows, index } => array(rows.iter().map(|row| &row[*index]), rows.len(), ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// A statement that writes many rows at once.
#[derive(Debug)]
pub(super) struct Set {
    table: &'static str,
    verb: Verb,
    /// How many of the first columns find the row. 0 for an insert.
    keys: usize,
    /// Names and types of all columns: `org_id uuid, run bigint, …`.
    columns: &'static str,
    /// One more condition on a row `t`.
    condition: &'static str,
    /// One more assignment to a row `t`.
    change: &'static str,
    /// What is returned of each row that was written.
    returning: &'static str,
    /// The statement for one row.
    one: OnceLock<String>,
    /// The statement for many rows.
    many: OnceLock<String>,
}

/// What a set does. Sets are sent in this order, since a command may insert a row and then update it, but never deletes
/// a row and then inserts it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verb {
    Insert,
    Add,
    Update,
    Delete,
}

impl Set {
    const fn new(verb: Verb, table: &'static str, keys: usize, columns: &'static str) -> Self {
        let (condition, change, returning) = ("", "", "");
        Self { table, verb, keys, columns, condition, change, returning, one: OnceLock::new(), many: OnceLock::new() }
    }

    /// Inserts rows.
    pub(super) const fn insert(table: &'static str, columns: &'static str) -> Self {
        Self::new(Verb::Insert, table, 0, columns)
    }

    /// Inserts rows, except those that exist already.
    pub(super) const fn add(table: &'static str, columns: &'static str) -> Self {
        Self::new(Verb::Add, table, 0, columns)
    }

    /// Updates the rows that the first `keys` columns find.
    pub(super) const fn update(table: &'static str, keys: usize, columns: &'static str) -> Self {
        Self::new(Verb::Update, table, keys, columns)
    }

    /// Deletes the rows that the columns find. `keys` is the number of all columns.
    pub(super) const fn delete(table: &'static str, keys: usize, columns: &'static str) -> Self {
        Self::new(Verb::Delete, table, keys, columns)
    }

    /// Adds a condition on the row `t`.
    pub(super) const fn only(mut self, condition: &'static str) -> Self {
        self.condition = condition;
        self
    }

    /// Adds an assignment, which may use the old values of the row `t`.
    pub(super) const fn changing(mut self, change: &'static str) -> Self {
        self.change = change;
        self
    }

    /// Returns these columns of each row that was written, to who sends the statement by itself.
    pub(super) const fn returning(mut self, columns: &'static str) -> Self {
        self.returning = columns;
        self
    }

    /// The statement for these rows with its parameters, to be sent by itself.
    pub(super) fn question(&'static self, rows: Vec<Vec<Value>>) -> (&'static str, Vec<Value>) {
        let mut columns: Vec<Vec<Value>> = Vec::new();
        for row in rows {
            columns.resize_with(row.len(), Vec::new);
            columns.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
        }
        (self.many(), columns.into_iter().map(Value::from).collect())
    }

    /// The statement for one row: each parameter is a value.
    fn one(&'static self) -> &'static str {
        self.one.get_or_init(|| self.statement(false))
    }

    /// The statement for any number of rows: each parameter is an array.
    fn many(&'static self) -> &'static str {
        self.many.get_or_init(|| self.statement(true))
    }

    fn statement(&self, many: bool) -> String {
        let columns: Vec<(&str, &str)> =
            self.columns.split(',').filter_map(|column| column.trim().split_once(' ')).collect();
        let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        let array = if many { "[]" } else { "" };
        let params: Vec<String> =
            columns.iter().enumerate().map(|(n, (_, ty))| format!("${}::{ty}{array}", n + 1)).collect();
        let set =
            |n: usize| if many { format!("{0} = v.{0}", names[n]) } else { format!("{} = {}", names[n], params[n]) };
        let mut found: Vec<String> = (0..self.keys).map(|n| format!("t.{}", set(n))).collect();
        found.extend(Some(self.condition).filter(|condition| !condition.is_empty()).map(str::to_owned));
        let mut changes: Vec<String> = (self.keys..names.len()).map(set).collect();
        changes.extend(Some(self.change).filter(|change| !change.is_empty()).map(str::to_owned));
        let (table, names, params) = (self.table, names.join(", "), params.join(", "));
        let (found, changes) = (found.join(" AND "), changes.join(", "));
        let rows = if many { format!("SELECT * FROM UNNEST({params})") } else { format!("VALUES ({params})") };
        // The LIMIT makes the planner expect few rows, so that it looks each of them up in the index.
        let from = |word: &str| match many {
            true => format!(" {word} (SELECT * FROM UNNEST({params}) AS u({names}) LIMIT cardinality($1)) v"),
            false => String::new(),
        };
        let told = if self.returning.is_empty() { String::new() } else { format!(" RETURNING {}", self.returning) };
        match self.verb {
            Verb::Insert => format!("INSERT INTO {table} ({names}) {rows}"),
            Verb::Add => format!("INSERT INTO {table} ({names}) {rows} ON CONFLICT DO NOTHING{told}"),
            Verb::Update => format!("UPDATE {table} t SET {changes}{} WHERE {found}", from("FROM")),
            Verb::Delete => format!("DELETE FROM {table} t{} WHERE {found}", from("USING")),
        }
    }
}

/// From so many rows on, a row is found by its keys in a table, and not by comparing it with each of them.
const MANY: usize = 64;

/// The rows of one statement.
#[derive(Debug)]
struct Rows {
    set: &'static Set,
    rows: Vec<Vec<Value>>,
    /// The places of the first rows by their keys. Of a few rows there is none.
    places: HashMap<Vec<Value>, usize>,
}

impl Rows {
    /// The row that these keys find.
    fn find(&mut self, keys: &[Value]) -> Option<&mut Vec<Value>> {
        let count = keys.len();
        if self.rows.len() < MANY {
            return self.rows.iter_mut().find(|there| there[..count] == *keys);
        }
        for (place, row) in self.rows.iter().enumerate().skip(self.places.len()) {
            self.places.insert(row[..count].to_vec(), place);
        }
        self.places.get(keys).map(|place| &mut self.rows[*place])
    }
}

/// Rows that wait to be sent, by the statement that writes them.
#[derive(Debug, Default)]
pub(super) struct Writes(Vec<Rows>);

impl Writes {
    fn rows_of(&mut self, set: &'static Set) -> &mut Rows {
        let place = self.0.iter().position(|known| std::ptr::eq(known.set, set)).unwrap_or_else(|| {
            self.0.push(Rows { set, rows: Vec::new(), places: HashMap::new() });
            self.0.len() - 1
        });
        &mut self.0[place]
    }

    /// Adds a row. A second update of a row takes the place of the first.
    pub(super) fn put(&mut self, set: &'static Set, row: Vec<Value>) {
        let rows = self.rows_of(set);
        let again = if set.keys > 0 { rows.find(&row[..set.keys]) } else { None };
        match again {
            Some(there) => *there = row,
            None => rows.rows.push(row),
        }
    }

    /// Adds the rows of another command. They are compared with the ones here only if both may update the same row.
    pub(super) fn append(&mut self, others: Self, shares_rows: bool) {
        for mut others in others.0 {
            match self.0.iter_mut().find(|known| std::ptr::eq(known.set, others.set)) {
                Some(_) if shares_rows => others.rows.into_iter().for_each(|row| self.put(others.set, row)),
                Some(there) => there.rows.append(&mut others.rows),
                None => self.0.push(others),
            }
        }
    }

    /// Whether there is nothing to send.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The statements with their columns.
    pub(super) fn statements(&self) -> impl Iterator<Item = (&'static str, Vec<Column<'_>>)> {
        let mut sets: Vec<_> = self.0.iter().collect();
        sets.sort_by_key(|rows| rows.set.verb);
        sets.into_iter().map(|Rows { set, rows, .. }| match rows.as_slice() {
            [row] => (set.one(), row.iter().map(Column::One).collect()),
            rows => (set.many(), (0..rows[0].len()).map(|index| Column::Each { rows, index }).collect()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static ADDED: Set = Set::insert("t", "a bigint, b text");
    static CHANGED: Set = Set::update("t", 1, "a bigint, b text");

    #[test]
    fn sets_are_one_statement_each() {
        assert_eq!(ADDED.many(), "INSERT INTO t (a, b) SELECT * FROM UNNEST($1::bigint[], $2::text[])");
        let update = "UPDATE t t SET b = v.b FROM (SELECT * FROM UNNEST($1::bigint[], $2::text[]) AS u(a, b) \
                      LIMIT cardinality($1)) v WHERE t.a = v.a";
        assert_eq!(CHANGED.many(), update);
    }

    #[test]
    fn a_lone_row_travels_without_arrays() {
        assert_eq!(ADDED.one(), "INSERT INTO t (a, b) VALUES ($1::bigint, $2::text)");
        assert_eq!(CHANGED.one(), "UPDATE t t SET b = $2::text WHERE t.a = $1::bigint");
        let mut writes = Writes::default();
        writes.put(&ADDED, row![1i64, "one"]);
        let sent: Vec<_> = writes.statements().map(|(sql, columns)| (sql, columns.len())).collect();
        assert_eq!(sent, [(ADDED.one(), 2)]);
    }

    #[test]
    fn a_second_update_of_a_row_replaces_the_first() {
        let mut writes = Writes::default();
        let rows = 2 * MANY as i64 + 1;
        for text in ["one", "two"] {
            for n in 0..rows {
                writes.put(&CHANGED, row![n, text]);
                writes.put(&ADDED, row![n, text]);
            }
        }
        let counts: Vec<_> = writes.0.iter().map(|rows| rows.rows.len() as i64).collect();
        assert_eq!(counts, [rows, 2 * rows]);
        let changed = &writes.0[0].rows;
        assert!(changed.iter().zip(0..).all(|(row, n)| *row == row![n, "two"]));
    }
}
