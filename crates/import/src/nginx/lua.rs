//! The end of code in Lua: braces in its strings and comments do not count.
//!
//! Source: the manual of Lua 5.1, *Lexical Conventions*.

use std::iter::Peekable;

/// The number of characters of a block, with the brace that ends it; `None` if it has no end.
pub(super) fn block_len(code: impl Iterator<Item = char>) -> Option<usize> {
    let mut lua = Lua { code: code.peekable(), read: 0 };
    let mut depth = 1_u64;
    while depth > 0 {
        match lua.step()? {
            '{' => depth += 1,
            '}' => depth -= 1,
            quote @ ('"' | '\'') => lua.quoted(quote)?,
            '[' => _ = lua.bracket()?,
            '-' if lua.is_next('-') => lua.comment()?,
            _ => (),
        }
    }
    Some(lua.read)
}

struct Lua<C: Iterator<Item = char>> {
    code: Peekable<C>,
    read: usize,
}

impl<C: Iterator<Item = char>> Lua<C> {
    fn step(&mut self) -> Option<char> {
        self.read += 1;
        self.code.next()
    }

    /// Takes `letter` if it is next.
    fn is_next(&mut self, letter: char) -> bool {
        let is_next = self.code.peek() == Some(&letter);
        if is_next {
            self.step();
        }
        is_next
    }

    fn quoted(&mut self, quote: char) -> Option<()> {
        loop {
            match self.step()? {
                '\\' => _ = self.step()?,
                end if end == quote => return Some(()),
                _ => (),
            }
        }
    }

    /// Reads a long bracket, `[[ … ]]` or `[==[ … ]==]`, behind its first `[`. Returns whether there is one.
    fn bracket(&mut self) -> Option<bool> {
        let mut level = 0_usize;
        while self.is_next('=') {
            level += 1;
        }
        if !self.is_next('[') {
            return Some(false);
        }
        loop {
            if self.step()? != ']' {
                continue;
            }
            // The second bracket of one that does not fit may begin one that does.
            loop {
                let mut found = 0;
                while self.is_next('=') {
                    found += 1;
                }
                if !self.is_next(']') {
                    break;
                }
                if found == level {
                    return Some(true);
                }
            }
        }
    }

    /// A comment, of which `--` was read: a long bracket, or the rest of the line.
    fn comment(&mut self) -> Option<()> {
        let is_long = self.is_next('[') && self.bracket()?;
        if !is_long {
            while self.step()? != '\n' {}
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::block_len;

    #[test]
    fn braces_in_strings_and_comments_do_not_end_a_block() {
        for code in [
            "}",
            " if x then y = { 1 } end }",
            " -- a }\n }",
            " -- an {\n }",
            " --[[ }\n} ]] }",
            " --[==[ } ]] } ]=] }]==]}",
            " --[=x }\n}",
            " --[x }\n}",
            " --[==x }\n}",
            r#" a = "}" .. '\'}' .. "\"}" }"#,
            " a = [[ {{ name } ]] }",
            " a = [=[ ]] } ]]=] ]=] }",
            " a[1] = b[c[2]] - 1 }",
        ] {
            assert_eq!(block_len(code.chars()), Some(code.chars().count()), "{code}");
            assert_eq!(
                block_len(code.chars().chain(" } more".chars())),
                Some(code.chars().count())
            );
        }
    }

    #[test]
    fn a_block_without_an_end_has_no_length() {
        for code in ["", "{", "\"}", "[[ }", "-- }", "--[[ }", "'\\"] {
            assert_eq!(block_len(code.chars()), None, "{code}");
        }
    }
}
