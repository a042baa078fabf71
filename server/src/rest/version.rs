//! What makes an answer the same as an earlier one.

/// An extension of an answer: the hash to make its tag of, where a part of the answer changes with time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Version(blake3::Hash);

impl Version {
    /// The version with this content.
    pub(super) fn of(text: &[u8]) -> Self {
        Self(blake3::hash(text))
    }

    /// The hash of its content.
    pub(crate) fn hash(self) -> blake3::Hash {
        self.0
    }
}
