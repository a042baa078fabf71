//! How statements are sent on a connection: prepared once if the connection has a session of its own, else whole each
//! time.
//!
//! A pooler such as PgBouncer with `pool_mode = transaction` gives each transaction another session, so prepared
//! statements and settings are lost. There each statement is sent with its text, and the settings are sent with the
//! first statement of each transaction. For that the types of a statement's parameters have to be known; they are the
//! same on every connection.

use super::link::{Ask, together};
use crate::sync::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error, Row, Statement};

/// The settings of every session, or of every transaction.
///
/// They make the planner use indexes. Each statement has an index that returns its rows in their order, and plans are
/// made once. The statistics of tables that were empty a minute ago must not lead the planner to read a whole table, or
/// to sort all rows of a run for the last one. Lists of keys are given with a LIMIT, which makes the planner expect few
/// rows and look each of them up.
macro_rules! settings {
    ($before:literal, $to:literal, $after:literal, $between:literal) => {
        concat!(
            settings!(@ $before, "plan_cache_mode", $to, "force_generic_plan", $after, $between),
            settings!(@ $before, "enable_seqscan", $to, "off", $after, $between),
            settings!(@ $before, "enable_hashjoin", $to, "off", $after, $between),
            settings!(@ $before, "enable_mergejoin", $to, "off", $after, $between),
            settings!(@ $before, "enable_bitmapscan", $to, "off", $after, $between),
            settings!(@ $before, "jit", $to, "off", $after, $between),
            settings!(@ $before, "client_min_messages", $to, "warning", $after, $between),
            settings!(@ $before, "idle_in_transaction_session_timeout", $to, "60s", $after, $between),
            settings!(@ $before, "lock_timeout", $to, "20s", $after, ""),
        )
    };
    (@ $before:literal, $name:literal, $to:literal, $value:literal, $after:literal, $between:literal) => {
        concat!($before, $name, $to, $value, $after, $between)
    };
}

const SESSION: &str = settings!("SET ", " = '", "'", "; ");
const TRANSACTION: &str = concat!("SELECT ", settings!("set_config('", "', '", "', true)", ", "));

/// Sets the org of sessions that write: one transaction has commands of many orgs. Row-level security restricts those
/// that read.
const SESSION_OF_ALL: &str = "SET flovyn.org = '*'";
const TRANSACTION_OF_ALL: &str =
    concat!("SELECT set_config('flovyn.org', '*', true), ", settings!("set_config('", "', '", "', true)", ", "));

/// How often the types are asked for if the name of a statement is taken: in a lent session others may have left
/// prepared statements.
const TRIES: usize = 5;

/// A statement, by the address of its text, which is static.
type Name = (usize, usize);

fn name(sql: &'static str) -> Name {
    (sql.as_ptr() as usize, sql.len())
}

/// The types of the parameters of statements, for all connections to a database.
pub(super) type Types = Arc<Mutex<HashMap<Name, Arc<[Type]>>>>;

/// The session of a connection.
pub(super) enum Session {
    /// It has its own for as long as it is open. Prepared statements stay.
    Own(HashMap<Name, Statement>),
    /// A pooler lends it another one for each transaction.
    Lent { types: Types, all_orgs: bool, in_transaction: bool },
}

impl Session {
    /// Sets up a session of its own.
    pub(super) async fn own(client: &Client, all_orgs: bool) -> Result<Self, Error> {
        client.batch_execute(SESSION).await?;
        if all_orgs {
            client.batch_execute(SESSION_OF_ALL).await?;
        }
        Ok(Self::Own(HashMap::new()))
    }

    /// Sets up a lent session. Fails if the pooler does not keep a session even for a transaction.
    pub(super) async fn lent(client: &Client, all_orgs: bool, types: Types) -> Result<Self, Error> {
        client.batch_execute("BEGIN").await?;
        client.batch_execute("ROLLBACK").await?;
        Ok(Self::Lent { types, all_orgs, in_transaction: false })
    }

    /// Whether the next transaction may have another session.
    pub(super) fn is_lent(&self) -> bool {
        matches!(self, Self::Lent { .. })
    }

    /// Sends all statements, then waits for all answers.
    pub(super) async fn exchange(&mut self, client: &Client, asks: &[Ask<'_>]) -> Result<Vec<Vec<Row>>, Error> {
        match self {
            Self::Own(statements) => own(client, statements, asks).await,
            Self::Lent { types, all_orgs, in_transaction } => {
                let begins = asks.first().is_some_and(|ask| ask.sql.starts_with("BEGIN"));
                let types = learn(client, types, asks, *in_transaction && !begins).await?;
                let mut sent: Vec<_> = asks.iter().zip(types).map(|(ask, types)| typed(ask, &types)).collect();
                if begins {
                    sent.insert(1, (if *all_orgs { TRANSACTION_OF_ALL } else { TRANSACTION }, Vec::new()));
                    *in_transaction = true;
                }
                if asks.last().is_some_and(|ask| matches!(ask.sql, "COMMIT" | "ROLLBACK")) {
                    *in_transaction = false;
                }
                let answers = together(sent.iter().map(|(sql, params)| client.query_typed(sql, params))).await;
                let mut answers = answers.into_iter().collect::<Result<Vec<_>, _>>()?;
                if begins {
                    answers.remove(1);
                }
                Ok(answers)
            }
        }
    }

    /// Runs statements of the simple protocol.
    pub(super) async fn batch(&mut self, client: &Client, sql: &str) -> Result<(), Error> {
        client.batch_execute(sql).await?;
        if let Self::Lent { all_orgs, in_transaction, .. } = self {
            if sql.starts_with("BEGIN") {
                *in_transaction = true;
                client.batch_execute(if *all_orgs { TRANSACTION_OF_ALL } else { TRANSACTION }).await?;
            }
            *in_transaction &= sql != "COMMIT";
        }
        Ok(())
    }
}

async fn own(
    client: &Client,
    statements: &mut HashMap<Name, Statement>,
    asks: &[Ask<'_>],
) -> Result<Vec<Vec<Row>>, Error> {
    let lacking = lacking(asks.iter().filter(|ask| !statements.contains_key(&name(ask.sql))));
    if !lacking.is_empty() {
        let prepared = together(lacking.iter().map(|sql| client.prepare(sql))).await;
        for (sql, statement) in lacking.into_iter().zip(prepared) {
            statements.insert(name(sql), statement?);
        }
    }
    let sent = asks.iter().map(|ask| client.query(&statements[&name(ask.sql)], &ask.params));
    together(sent).await.into_iter().collect()
}

/// The texts of these statements, each once.
fn lacking<'a>(asks: impl Iterator<Item = &'a Ask<'a>>) -> Vec<&'static str> {
    let mut lacking: Vec<&'static str> = Vec::new();
    for ask in asks {
        if !lacking.contains(&ask.sql) {
            lacking.push(ask.sql);
        }
    }
    lacking
}

type Typed<'a> = (&'static str, Vec<(&'a (dyn ToSql + Sync), Type)>);

fn typed<'a>(ask: &'a Ask<'_>, types: &[Type]) -> Typed<'a> {
    (ask.sql, ask.params.iter().copied().zip(types.iter().cloned()).collect())
}

/// The parameter types of each statement. To learn unknown ones, the statements are prepared and closed again within
/// one transaction, so that nothing is left in the session for the next one who gets it.
async fn learn(
    client: &Client,
    types: &Types,
    asks: &[Ask<'_>],
    in_transaction: bool,
) -> Result<Vec<Arc<[Type]>>, Error> {
    let known = |ask: &Ask<'_>| match ask.params.is_empty() {
        true => Some(Arc::default()),
        false => types.lock().get(&name(ask.sql)).cloned(),
    };
    let lacking = lacking(asks.iter().filter(|ask| known(ask).is_none()));
    for tries in 1.. {
        if lacking.is_empty() {
            break;
        }
        if !in_transaction {
            client.batch_execute("BEGIN").await?;
        }
        let prepared = together(lacking.iter().map(|sql| client.prepare(sql))).await;
        let described: Result<Vec<Statement>, Error> = prepared.into_iter().collect();
        if let Ok(statements) = &described {
            let mut types = types.lock();
            types.extend(lacking.iter().zip(statements).map(|(sql, known)| (name(sql), known.params().into())));
        }
        // Dropping the statements closes them. The driver sends that before the next message.
        let failed = described.map(drop).err();
        if !in_transaction {
            client.batch_execute("ROLLBACK").await?;
        }
        let is_taken = |error: &Error| error.code() == Some(&SqlState::DUPLICATE_PSTATEMENT);
        match failed {
            None => break,
            // The driver numbers the names of its statements. One of the next numbers is free.
            Some(error) if is_taken(&error) && !in_transaction && tries < TRIES => {}
            Some(error) => return Err(error),
        }
    }
    Ok(asks.iter().map(|ask| known(ask).unwrap_or_default()).collect())
}
