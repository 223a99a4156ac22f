//! Kubernetes documents as text: read, patched and written without disturbing what isn't patched.
//!
//! ```text
//! text → events (granit-parser) → nodes with spans → data → JSON for the injection core
//!                                      ↓                            ↓
//!            text edits ← draft (what changes where) ← RFC 6902 operations
//! ```
//!
//! A document is *edited*, not printed anew, so that comments, order, quoting and blank lines survive.
//! Every edited text is read again and compared with what `json-patch` makes of the same operations; where
//! an edit isn't possible the smallest enclosing node is written anew, at worst the whole document.
//!
//! - [`source`]: a file's text, split into documents.
//! - [`parse`], [`node`]: YAML with the place of every node.
//! - [`scalar`], [`read`], [`data`]: the values as kubectl sees them (YAML 1.1 words, merge keys, all digits).
//! - [`draft`], [`edit`], [`emit`]: operations, text edits, new text.
//! - [`rewrite`]: all of it for one document, with the proof.
//! - [`objects`]: the Kubernetes objects in a document, Lists opened.

pub mod data;
pub mod draft;
pub mod edit;
pub mod emit;
pub mod error;
pub mod node;
pub mod objects;
pub mod parse;
pub mod read;
pub mod rewrite;
pub mod scalar;
pub mod source;
