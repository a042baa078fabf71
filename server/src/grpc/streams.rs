//! Responses that are streams or pages: split by size, ended when the server stops.

use super::to_status;
use flovyn_core::model::{Page, PageRequest};
use flovyn_core::wire::MAX_MESSAGE;
use futures::{Stream, StreamExt, stream};
use prost::Message;
use std::pin::Pin;
use tonic::{Response, Status};

/// The stream of an answer.
pub type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// A page holds about so many bytes.
pub(super) const PAGE_BYTES: usize = 1 << 20;

/// A stream of items that are in memory.
pub(super) fn from_items<T: Send + 'static>(items: Vec<T>) -> ResponseStream<T> {
    Box::pin(stream::iter(items.into_iter().map(Ok)))
}

/// Items until `end` resolves; the stream then ends with its status, if there is one.
pub(super) fn until<T: Send + 'static>(
    items: impl Stream<Item = Result<T, Status>> + Send + 'static,
    end: impl Future<Output = Option<Status>> + Send + 'static,
) -> ResponseStream<T> {
    let state = Some((Box::pin(items), Box::pin(end)));
    Box::pin(stream::unfold(state, |state| async {
        let (mut items, mut end) = state?;
        tokio::select! {
            item = items.next() => Some((item?, Some((items, end)))),
            last = &mut end => Some((Err(last?), None)),
        }
    }))
}

/// Splits items into pages by their size.
pub(super) fn split_by_size<T>(items: Vec<T>, size: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut split_by_size = vec![Vec::new()];
    let mut filled = 0;
    for item in items {
        filled += size(&item);
        if filled > PAGE_BYTES && split_by_size.last().is_some_and(|page| !page.is_empty()) {
            split_by_size.push(Vec::new());
            filled = size(&item);
        }
        if let Some(page) = split_by_size.last_mut() {
            page.push(item);
        }
    }
    split_by_size
}

/// The items of an answer, in their form on the wire.
pub(super) fn to_wire<M, W: for<'a> From<&'a M>>(items: &[M]) -> Vec<W> {
    items.iter().map(Into::into).collect()
}

/// The page of a listing as one message; a page that would exceed the limit of a message gets fewer items.
pub(super) async fn page_response<M, W, A, L>(
    mut page: PageRequest,
    list: impl Fn(PageRequest) -> L,
    answer: impl Fn(Vec<W>, Option<String>) -> A,
) -> Result<Response<A>, Status>
where
    W: for<'a> From<&'a M>,
    A: Message,
    L: Future<Output = flovyn_core::Result<Page<M>>>,
{
    loop {
        let listed = list(page.clone()).await.map_err(to_status)?;
        let items = listed.items.len();
        let answer = answer(to_wire(&listed.items), listed.next.map(|cursor| cursor.0));
        if items <= 1 || answer.encoded_len() <= MAX_MESSAGE {
            return Ok(Response::new(answer));
        }
        page.limit = items / 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_hold_what_fits_and_never_nothing() {
        let sizes = [PAGE_BYTES / 2, PAGE_BYTES / 2, 1, PAGE_BYTES * 3, 5];
        let split = split_by_size(sizes.to_vec(), |size| *size);
        assert_eq!(split, [vec![PAGE_BYTES / 2, PAGE_BYTES / 2], vec![1], vec![PAGE_BYTES * 3], vec![5]]);
        assert_eq!(split_by_size(Vec::<usize>::new(), |size| *size), [Vec::<usize>::new()]);
    }
}
