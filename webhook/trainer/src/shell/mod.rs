//! Reads shell scripts as far as they can be known without running them.
//!
//! `lexer` and `parser` make a tree of a text; `run` walks it as a shell would, with values that may be unknown, and
//! with both branches of a condition that can't be decided.

mod arithmetic;
mod assign;
mod braces;
mod builtins;
mod calls;
mod condition;
mod expand;
mod flow;
mod lexer;
mod merge;
mod output;
mod parameter;
mod parser;
mod run;
mod state;
mod tree;

pub(crate) use self::run::{Call, ENVIRONMENT, Interpreter, Started};
