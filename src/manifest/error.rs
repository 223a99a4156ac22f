//! Why a document can't be read.

/// A document that can't be read, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("document {document}, line {line}: {problem}")]
pub struct DocumentError {
    /// Counted from 1 in its file.
    pub document: usize,
    /// Counted from 1 in its file.
    pub line: usize,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Not YAML.
    #[error("it isn't valid YAML: {0}")]
    Syntax(String),
    /// Not YAML because it is a template of YAML.
    #[error("it isn't YAML yet but a template (`{{{{ … }}}}`); render it first (`helm template`)")]
    Template,
    /// A key that stands twice in one mapping.
    #[error("key {key:?} stands on line {first} already; remove one of the two")]
    DuplicateKey {
        /// The key.
        key: String,
        /// Line of the first.
        first: usize,
    },
    /// A key that JSON can't have.
    #[error("{0} can't be a key; write a string")]
    Key(&'static str),
    /// A number that JSON can't have.
    #[error("`{0}` is no number that Kubernetes can store; quote it if a string is meant")]
    NotFinite(String),
    /// A tag that contradicts the text.
    #[error("`{text}` can't be read as {tag}; correct it or remove the tag")]
    Tag {
        /// The text.
        text: String,
        /// The tag, as `!!int`.
        tag: String,
    },
    /// An alias inside the node it stands for.
    #[error("the alias stands inside the anchor it refers to; write the value out")]
    Cycle,
    /// A merge key whose value isn't a mapping.
    #[error("the merge key `<<` takes a mapping or a list of mappings")]
    Merge,
    /// Aliases that multiply beyond reason.
    #[error("its aliases unfold to more than {0} values; write them out")]
    TooBig(usize),
    /// Nested beyond reason.
    #[error("it is nested deeper than {0} levels")]
    TooDeep(usize),
    /// Not an object.
    #[error(
        "it is {0} and not a Kubernetes object, which is a mapping with apiVersion, kind and metadata; correct or remove it"
    )]
    NotAnObject(&'static str),
    /// A field of an object that every kind has, of a wrong type.
    #[error("field `{field}` is {found}, but has to be {expected}; correct it")]
    Field {
        /// The field, as `items[2].kind`.
        field: String,
        /// What it is.
        found: &'static str,
        /// What it has to be.
        expected: &'static str,
    },
}
