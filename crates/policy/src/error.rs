//! The errors of a document with their places: every error at once, each with its path.

use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt::{self, Write};

use crate::finding;
use crate::finding::Finding;
use crate::limits::{ERRORS_MAX, EXCERPT_CHARS_MAX};
use crate::node::DocumentNode;
use crate::pointer::{pointer_to_field, pointer_to_item};
use crate::quoted::{excerpt, is_template, template};
use crate::text::TextError;

/// One error of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentError {
    path: String,
    pointer: String,
    problem: Finding,
}

/// All errors of a document, in its order. Displayed one error a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DocumentErrors {
    errors: Vec<DocumentError>,
    omitted: usize,
}

impl DocumentError {
    pub(crate) fn new(
        path: impl Into<String>,
        pointer: impl Into<String>,
        problem: Finding,
    ) -> Self {
        Self { path: path.into(), pointer: pointer.into(), problem }
    }

    /// The place: `policies[2].rules[0].token_bucket.rate`. Empty: the document as a whole.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The path as a JSON pointer (RFC 6901). A field whose name is very long is left out: the pointer is that of its
    /// map.
    pub fn pointer(&self) -> &str {
        &self.pointer
    }

    /// The given value and the permitted ones.
    pub fn problem(&self) -> &str {
        self.problem.text()
    }

    /// The problem with its code and parameters.
    pub const fn finding(&self) -> &Finding {
        &self.problem
    }
}

impl DocumentErrors {
    /// The only error, of the document as a whole.
    pub(crate) fn whole(problem: Finding) -> Self {
        Self::of(DocumentError::new("", "", problem))
    }

    /// The only error.
    pub(crate) fn of(error: DocumentError) -> Self {
        Self { errors: alloc::vec![error], omitted: 0 }
    }

    /// The errors, at least one and at most [`ERRORS_MAX`].
    pub fn errors(&self) -> &[DocumentError] {
        &self.errors
    }

    /// The number of errors that [`errors`](Self::errors) leaves out.
    pub const fn omitted(&self) -> usize {
        self.omitted
    }

    fn push(&mut self, at: &At<'_>, problem: Finding) {
        if self.errors.len() < ERRORS_MAX {
            self.errors.push(DocumentError::new(at.path(), at.pointer(), problem));
        } else {
            self.omitted += 1;
        }
    }
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(self.problem.text())
    }
}

impl core::error::Error for DocumentError {}

impl fmt::Display for DocumentErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, error) in self.errors.iter().enumerate() {
            if place > 0 {
                f.write_char('\n')?;
            }
            write!(f, "{error}")?;
        }
        if self.omitted > 0 {
            write!(f, "\nand {} more", self.omitted)?;
        }
        Ok(())
    }
}

impl core::error::Error for DocumentErrors {}

/// A place in a document that errors can be reported at. The path is written only if one is.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    parent: Option<&'a At<'a>>,
    step: PathStep<'a>,
    errors: &'a RefCell<DocumentErrors>,
}

#[derive(Clone, Copy)]
enum PathStep<'a> {
    Root,
    Field(&'a str),
    Index(usize),
}

impl<'a> At<'a> {
    pub(crate) const fn root(errors: &'a RefCell<DocumentErrors>) -> Self {
        Self { parent: None, step: PathStep::Root, errors }
    }

    pub(crate) const fn field<'b>(&'b self, name: &'b str) -> At<'b> {
        At { parent: Some(self), step: PathStep::Field(name), errors: self.errors }
    }

    pub(crate) const fn index(&self, index: usize) -> At<'_> {
        At { parent: Some(self), step: PathStep::Index(index), errors: self.errors }
    }

    /// Reports `problem` here. Returns `None`, as the caller has no value to return either.
    pub(crate) fn report<T>(&self, problem: Finding) -> Option<T> {
        self.errors.borrow_mut().push(self, problem);
        None
    }

    /// Reports that `wanted` should be here, not `node`.
    pub(crate) fn expected<T>(&self, wanted: &str, node: &DocumentNode) -> Option<T> {
        if let DocumentNode::Text(text) = node
            && is_template(text)
        {
            return self.report(template(text));
        }
        self.report(finding!(
            "expected",
            "expected {wanted}, found {found}",
            wanted,
            found = node.describe()
        ))
    }

    /// Returns the value of `parsed`, or reports its error here.
    pub(crate) fn ok<T>(&self, parsed: Result<T, TextError>) -> Option<T> {
        parsed.map_or_else(|error| self.report(error.into_finding()), Some)
    }

    pub(crate) fn path(&self) -> String {
        let mut path = self.parent.map(At::path).unwrap_or_default();
        match self.step {
            PathStep::Root => {}
            PathStep::Index(index) => {
                let _ = write!(path, "[{index}]");
            }
            PathStep::Field(name) if is_plain(name) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
            }
            PathStep::Field(name) => {
                let _ = write!(path, "[\"{}\"]", excerpt(name));
            }
        }
        path
    }

    fn pointer(&self) -> String {
        let pointer = self.parent.map(At::pointer).unwrap_or_default();
        match self.step {
            PathStep::Root => pointer,
            PathStep::Index(index) => pointer_to_item(pointer, index),
            PathStep::Field(name) => pointer_to_field(pointer, name),
        }
    }
}

fn is_plain(field: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    !field.is_empty() && field.len() <= EXCERPT_CHARS_MAX && field.bytes().all(plain)
}
