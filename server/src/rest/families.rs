//! The families of runs: the children of one, and the tree below it.

use super::executions::{ExecutionView, Items, Versioned, version, view};
use super::problem::Problem;
use super::request::{Caller, QueryParams};
use super::value::{IN_PLACE, IN_ROW};
use flovyn_core::client::{Tree, with_roll_ups};
use flovyn_core::model::ExecutionFilter;
use serde::Serialize;
use utoipa::ToSchema;

/// The most runs of a tree, beside its top.
const MOST: usize = 1_000;

/// The runs that a run has started, newest first, each with what it and all below it come to.
#[utoipa::path(
    operation_id = "list_children",
    get, path = "/agent-executions/{id}/children", tag = "runs",
    params(
        ("limit" = Option<u32>, Query, description = "1 to 1,000; 100 without one"), ("cursor" = Option<String>, Query),
    ),
    responses((status = 200, body = Items<ExecutionView>))
)]
pub(super) async fn children(
    caller: Caller,
    mut query: QueryParams,
) -> Result<Versioned<Items<ExecutionView>>, Problem> {
    let filter = ExecutionFilter { parent: Some(caller.run().await?.new.id), ..ExecutionFilter::default() };
    let page = query.page()?;
    query.reject_unknown()?;
    let storage = &caller.service.storage;
    let page = storage.executions(caller.org(), filter, page).await?;
    let mut items = Vec::with_capacity(page.items.len());
    for (run, sum) in with_roll_ups(&**storage, caller.org(), page.items).await? {
        items.push(view(&caller, &run, IN_ROW).await?.with(&sum));
    }
    let next_cursor = page.next.map(|cursor| cursor.0);
    let version = version(&mut items, next_cursor.as_deref())?;
    Ok((version, axum::Json(Items { items, next_cursor })))
}

/// A run with the runs below it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = AgentExecutionTree)]
pub(super) struct TreeView {
    #[serde(flatten)]
    run: ExecutionView,
    /// Its children, in the order in which they were started.
    #[schema(no_recursion)]
    children: Vec<TreeView>,
    /// How many runs below it are not shown.
    left_off: u64,
}

impl TreeView {
    /// The views of the runs come in the order of [`runs`].
    fn of(tree: &Tree, views: &mut impl Iterator<Item = ExecutionView>) -> Option<Self> {
        let run = views.next()?;
        let children = tree.children.iter().filter_map(|child| Self::of(child, views)).collect();
        Some(Self { run, children, left_off: tree.left_off() })
    }
}

/// The runs of a tree, each before its children.
fn runs(tree: &Tree) -> Vec<&Tree> {
    std::iter::once(tree).chain(tree.children.iter().flat_map(runs)).collect()
}

/// A run and all runs below it, each with what it and all below it come to. Of a large family the first generations: each
/// run says how many below it are left off, and `/children` lists them.
#[utoipa::path(
    operation_id = "get_tree",
    get, path = "/agent-executions/{id}/tree", tag = "runs",
    params(("limit" = Option<u32>, Query, description = "The most runs below it, 1 to 1,000; 1,000 without one")),
    responses((status = 200, body = TreeView))
)]
pub(super) async fn tree(caller: Caller, mut query: QueryParams) -> Result<Versioned<TreeView>, Problem> {
    let limit = query.parse("limit", "a number from 1 to 1,000")?.unwrap_or(MOST);
    query.reject_unknown()?;
    if !(1..=MOST).contains(&limit) {
        return Err(Problem::invalid(format!("the parameter limit={limit} is not a number from 1 to 1,000")));
    }
    let run = caller.run().await?;
    let tree = Tree::below(&*caller.service.storage, caller.org(), run, limit).await?;
    let mut views = Vec::new();
    for (place, one) in runs(&tree).into_iter().enumerate() {
        let fetch = if place == 0 { IN_PLACE } else { IN_ROW };
        views.push(view(&caller, &one.run, fetch).await?.with(&one.sum));
    }
    let version = version(&mut views, None)?;
    let view = TreeView::of(&tree, &mut views.into_iter());
    let view = view.ok_or_else(|| Problem::not_found("the run was removed meanwhile".to_owned()))?;
    Ok((version, axum::Json(view)))
}
