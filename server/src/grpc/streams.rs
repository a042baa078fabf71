//! Answers that are streams or pages: cut by size, ended when the server stops.

use flovyn_core::error::Error;
use flovyn_core::model::{Page, PageRequest};
use flovyn_core::wire::MAX_MESSAGE;
use futures::{Stream, StreamExt, stream};
use prost::Message;
use std::pin::Pin;
use tonic::{Response, Status};

/// The stream of an answer.
pub(super) type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// A page holds about so many bytes.
pub(super) const PAGE: usize = 1 << 20;

/// Items that are there already.
pub(super) fn all<T: Send + 'static>(items: Vec<T>) -> Answers<T> {
    Box::pin(stream::iter(items.into_iter().map(Ok)))
}

/// Items until the stream must end, with the word that it then ends with, if there is one.
pub(super) fn cut<T: Send + 'static>(
    items: impl Stream<Item = Result<T, Status>> + Send + 'static,
    end: impl Future<Output = Option<Status>> + Send + 'static,
) -> Answers<T> {
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
pub(super) fn pages<T>(items: Vec<T>, size: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    let mut pages = vec![Vec::new()];
    let mut filled = 0;
    for item in items {
        filled += size(&item);
        if filled > PAGE && pages.last().is_some_and(|page| !page.is_empty()) {
            pages.push(Vec::new());
            filled = size(&item);
        }
        if let Some(page) = pages.last_mut() {
            page.push(item);
        }
    }
    pages
}

/// The items of an answer, in their form on the wire.
pub(super) fn wired<M, W: for<'a> From<&'a M>>(items: &[M]) -> Vec<W> {
    items.iter().map(Into::into).collect()
}

/// The page of a listing, as an answer that is no larger than a message may be: one that is has fewer items.
pub(super) async fn fitting<M, W, A, L>(
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
        let listed = list(page.clone()).await.map_err(failed)?;
        let items = listed.items.len();
        let answer = answer(wired(&listed.items), listed.next.map(|cursor| cursor.0));
        if items <= 1 || answer.encoded_len() <= MAX_MESSAGE {
            return Ok(Response::new(answer));
        }
        page.limit = items / 2;
    }
}

/// What an item of a stream says when it is an error.
pub(super) fn failed(error: Error) -> Status {
    super::told(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_hold_what_fits_and_never_nothing() {
        let sizes = [PAGE / 2, PAGE / 2, 1, PAGE * 3, 5];
        let split = pages(sizes.to_vec(), |size| *size);
        assert_eq!(split, [vec![PAGE / 2, PAGE / 2], vec![1], vec![PAGE * 3], vec![5]]);
        assert_eq!(pages(Vec::<usize>::new(), |size| *size), [Vec::<usize>::new()]);
    }
}
