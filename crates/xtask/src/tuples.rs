//! Functions with a parameter whose type contains a tuple: the caller passes values that the signature does not name.
//!
//! A struct with named fields, or separate parameters, say what each value is. The arguments of a closure are no tuple,
//! nor is `()`.

use syn::visit::{self, Visit};
use syn::{ImplItemFn, ItemFn, ItemMod, Signature, TypeTuple};

use crate::seams::File;
use crate::shipped;

/// Number of such functions that may exist: the pairs of an iterator, such as names with their values, read well.
const FUNCTIONS_MAX: usize = 20;

/// The functions in `files` with tuples, one line each, if there are too many of them.
pub fn problems(files: &[File]) -> Vec<String> {
    beyond(functions(files), FUNCTIONS_MAX)
}

fn beyond(found: Vec<String>, max: usize) -> Vec<String> {
    if found.len() <= max {
        return Vec::new();
    }
    let count = format!("{} functions take tuples, at most {max} may", found.len());
    [count].into_iter().chain(found).collect()
}

/// The functions with tuples, as path and name.
fn functions(files: &[File]) -> Vec<String> {
    let found = shipped::trees(files).into_iter().flat_map(|(path, file)| {
        let mut functions = Functions::default();
        functions.visit_file(&file);
        functions.0.into_iter().map(move |name| format!("{path}: `{name}` takes a tuple"))
    });
    found.collect()
}

/// The names of the functions that take tuples.
#[derive(Default)]
struct Functions(Vec<String>);

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        if !shipped::is_test(&function.attrs) {
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        if !shipped::is_test(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !shipped::is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_signature(&mut self, signature: &'ast Signature) {
        let mut tuples = Tuples(0);
        signature.inputs.iter().for_each(|input| tuples.visit_fn_arg(input));
        if tuples.0 > 0 {
            self.0.push(signature.ident.to_string());
        }
    }
}

/// Number of tuples in a type.
struct Tuples(usize);

impl<'ast> Visit<'ast> for Tuples {
    fn visit_type_tuple(&mut self, tuple: &'ast TypeTuple) {
        self.0 += usize::from(!tuple.elems.is_empty());
        visit::visit_type_tuple(self, tuple);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions_of(text: &str) -> Vec<String> {
        functions(&[("crates/a/src/a.rs".to_owned(), text.to_owned())])
    }

    #[test]
    fn a_tuple_in_any_parameter_is_found() {
        for text in [
            "fn f((a, b): (u8, u8)) {}",
            "impl A { fn f(&self, a: Option<(u8, u8)>) {} }",
            "trait A { fn f(a: &[(u8, u8)]); }",
            "mod a { fn f(a: impl Iterator<Item = (u8, u8)>) {} }",
            "fn g() { fn f(a: impl Fn((u8, u8))) {} }",
        ] {
            assert_eq!(functions_of(text), ["crates/a/src/a.rs: `f` takes a tuple"], "{text}");
        }
    }

    #[test]
    fn one_function_too_many_is_found_with_all_others() {
        let found = functions_of("fn f(a: (u8, u8)) {}\nfn g(a: (u8, u8)) {}");
        assert_eq!(beyond(found.clone(), 2), [""; 0]);
        let problems = beyond(found, 1);
        assert_eq!(problems[0], "2 functions take tuples, at most 1 may");
        assert_eq!(problems[2], "crates/a/src/a.rs: `g` takes a tuple");
    }

    #[test]
    fn closures_results_and_tests_have_no_tuple() {
        for text in [
            "fn f(a: impl Fn(u8, u8), b: fn(u8, u8) -> u8, c: Result<(), u8>) {}",
            "fn f(a: u8, b: [u8; 2]) -> (u8, u8) { let g = |c: (u8, u8)| c; g((a, a)) }",
            "#[cfg(test)]\nfn f(a: (u8, u8)) {}",
            "#[cfg(test)]\nmod a { fn f(a: (u8, u8)) {} }",
        ] {
            assert_eq!(functions_of(text), [""; 0], "{text}");
        }
    }
}
