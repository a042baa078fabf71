//! Fair claims: a claim for several kinds takes from each kind in turn, so that a backlog of one kind delays no other.

use super::ClaimRequest;
use std::cmp::Reverse;

/// The kinds of a claim, each once, in the claim's order.
pub(super) fn kinds(claim: &ClaimRequest) -> Vec<&str> {
    let mut kinds: Vec<&str> = Vec::with_capacity(claim.kinds.len());
    for kind in &*claim.kinds {
        if !kinds.contains(&kind.as_str()) {
            kinds.push(kind);
        }
    }
    kinds
}

/// Sorts what was found into the order of a claim: the highest priority first, within a priority the kinds take turns,
/// and within a kind the smallest comes first. An element is a priority, the place of its kind in the claim, and what
/// was found.
pub(super) fn in_turn<T: Ord>(mut found: Vec<(i32, usize, T)>) -> impl Iterator<Item = T> {
    found.sort_unstable_by(|a, b| (Reverse(a.0), a.1, &a.2).cmp(&(Reverse(b.0), b.1, &b.2)));
    let (mut last, mut round) = (None, 0_usize);
    let mut rounds = Vec::with_capacity(found.len());
    for (priority, kind, one) in found {
        round = if last == Some((priority, kind)) { round + 1 } else { 0 };
        last = Some((priority, kind));
        rounds.push((Reverse(priority), round, kind, one));
    }
    rounds.sort_unstable_by_key(|(priority, round, kind, _)| (*priority, *round, *kind));
    rounds.into_iter().map(|(.., one)| one)
}

#[cfg(test)]
mod tests {
    use super::in_turn;

    #[test]
    fn kinds_take_turns_within_a_priority() {
        let found = vec![(0, 0, 1), (0, 0, 2), (0, 0, 3), (0, 1, 9), (7, 1, 8), (0, 2, 5), (0, 2, 4)];
        assert_eq!(in_turn(found).collect::<Vec<_>>(), [8, 1, 9, 4, 2, 5, 3]);
    }
}
