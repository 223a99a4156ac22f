//! Reads, patches and writes Kubernetes documents as text, and leaves unpatched text as it is.
//!
//! ```text
//! text → events (granit-parser) → nodes with spans → data → JSON for the injection core
//!                                      ↓                            ↓
//!            text edits ← draft (what changes where) ← RFC 6902 operations
//! ```
//!
//! A document is edited in place, so comments, order, quoting and blank lines are kept. Where an edit isn't possible, the
//! smallest enclosing node is replaced, at worst the whole document. Every edited text is parsed and compared with the
//! result of `json-patch` for the same operations.
//!
//! - [`source`], [`kubectl`]: a file's text, split into documents as kubectl does.
//! - [`parse`], [`node`]: YAML nodes with their position in the text.
//! - [`scalar`], [`read`], [`data`]: the values as kubectl reads them (YAML 1.1 scalars, merge keys, all digits).
//! - [`draft`], [`aliases`], [`edit`], [`emit`]: operations, aliases, text edits, new text.
//! - [`rewrite`]: patches one document and verifies the result.
//! - [`objects`]: the Kubernetes objects of a document, including those in Lists.

pub mod aliases;
pub mod data;
pub mod draft;
pub mod edit;
pub mod emit;
pub mod error;
pub mod kubectl;
pub mod node;
pub mod objects;
pub mod parse;
pub mod read;
pub mod rewrite;
pub mod scalar;
pub mod source;
