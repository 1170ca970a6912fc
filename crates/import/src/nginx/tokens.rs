//! The text of a configuration as directives: words, and blocks of more of them.
//!
//! Source: nginx's own reader (`ngx_conf_read_token`): words end at spaces, `;` and `{`; quotes and backslashes
//! keep them together; `${name}` is a part of a word; `#` begins a comment where a word could begin.

use std::iter::Peekable;
use std::str::Chars;

use sluicegate_policy::{Finding, finding};
use sluicegate_text::terminal::one_line;

use super::lua;
use crate::Note;

/// Most levels of nested blocks. Real configurations have five.
const DEPTH_MAX: usize = 32;

/// Most directives of a configuration: those of a large site are some thousands.
const DIRECTIVES_MAX: usize = 50_000;

/// A directive: `limit_req zone=api burst=20;`, or one with a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Directive {
    pub(super) line: u64,
    /// At least one: its name.
    pub(super) words: Vec<String>,
    pub(super) block: Option<Vec<Directive>>,
}

impl Directive {
    pub(super) fn name(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    pub(super) fn arguments(&self) -> &[String] {
        self.words.get(1..).unwrap_or_default()
    }
}

/// A token of the text.
enum Lexeme {
    Word(String),
    Semicolon,
    Open,
    Close,
}

struct Tokens<'a> {
    text: Peekable<Chars<'a>>,
    line: u64,
}

/// The directives of `text`.
pub(super) fn parse(text: &str) -> Result<Vec<Directive>, Note> {
    let mut tokens = Tokens { text: text.chars().peekable(), line: 1 };
    // The blocks that are open, outermost first, each with the directive that it is of.
    let mut open: Vec<(Directive, Vec<Directive>)> = Vec::new();
    let mut block = Vec::new();
    let mut words: Vec<String> = Vec::new();
    // The first word of each further line of the directive.
    let mut breaks: Vec<usize> = Vec::new();
    let (mut begin, mut last, mut count) = (1, 1, 0);
    while let Some(token) = tokens.next()? {
        let wrong = |problem| Err(Note::widens(tokens.line, problem));
        match token {
            Lexeme::Word(word) => {
                if words.is_empty() {
                    (begin, count) = (tokens.line, count + 1);
                    breaks.clear();
                } else if tokens.line > last {
                    breaks.push(words.len());
                }
                last = tokens.line;
                if count > DIRECTIVES_MAX {
                    return wrong(finding!(
                        "nginx_directives",
                        "more than {max} directives",
                        max = DIRECTIVES_MAX
                    ));
                }
                words.push(word);
            }
            Lexeme::Semicolon | Lexeme::Open
                if let Some(place) = swallowed(&words, &breaks, matches!(token, Lexeme::Open)) =>
            {
                return Err(Note::widens(begin, unended(&words[..place], &words[place])));
            }
            Lexeme::Semicolon if words.is_empty() => return wrong(unexpected(";")),
            Lexeme::Semicolon => {
                block.push(Directive {
                    line: begin,
                    words: std::mem::take(&mut words),
                    block: None,
                });
            }
            Lexeme::Open if words.is_empty() => return wrong(unexpected("{")),
            Lexeme::Open if words.first().is_some_and(|name| name.ends_with("_by_lua_block")) => {
                tokens.skip_code()?;
                words.clear();
            }
            Lexeme::Open if open.len() == DEPTH_MAX => {
                return wrong(finding!(
                    "nginx_depth",
                    "more than {max} blocks in one another",
                    max = DEPTH_MAX
                ));
            }
            Lexeme::Open => {
                let directive =
                    Directive { line: begin, words: std::mem::take(&mut words), block: None };
                open.push((directive, std::mem::take(&mut block)));
            }
            Lexeme::Close if !words.is_empty() => {
                return Err(Note::widens(begin, unended(&words, "}")));
            }
            Lexeme::Close => {
                let Some((directive, outer)) = open.pop() else { return wrong(unexpected("}")) };
                let inner = std::mem::replace(&mut block, outer);
                block.push(Directive { block: Some(inner), ..directive });
            }
        }
    }
    check_ended(open.last().map(|(directive, _)| directive.line), &words, begin)?;
    Ok(block)
}

/// Checks that the text ends outside of blocks (the innermost `open` one begins in that line) and of a directive.
fn check_ended(open: Option<u64>, words: &[String], begin: u64) -> Result<(), Note> {
    if let Some(line) = open {
        let problem = finding!("nginx_unclosed", "the block that begins here has no `}}`");
        return Err(Note::widens(line, problem));
    }
    if !words.is_empty() {
        return Err(Note::widens(begin, finding!("nginx_unended", "the directive has no `;`")));
    }
    Ok(())
}

/// Directives with a block, which are never an argument of another.
const BLOCKS: [&str; 9] =
    ["http", "server", "location", "upstream", "events", "stream", "map", "geo", "limit_except"];

/// Parameters of `limit_req_zone` and `limit_req` after the first.
const PARAMETERS: [&str; 6] = ["zone=", "rate=", "burst=", "delay=", "nodelay", "sync"];

/// The place in `words` of the name of another directive, which one without a `;` has swallowed: it begins a line, as
/// the words at `breaks` do. A block `opens` behind `words`, or they end.
fn swallowed(words: &[String], breaks: &[usize], opens: bool) -> Option<usize> {
    let name = words.first().map_or("", String::as_str);
    let is_other = |place: &&usize| {
        let word = words.get(**place).map_or("", String::as_str);
        let is_parameter = PARAMETERS.iter().any(|parameter| word.starts_with(parameter));
        match name {
            "limit_req" => !is_parameter,
            "limit_req_zone" | "limit_conn_zone" => **place > 1 && !is_parameter,
            "limit_conn" => **place > 2,
            _ => opens && BLOCKS.contains(&word),
        }
    };
    breaks.iter().find(is_other).copied()
}

/// The error of a directive, `words`, that has no `;` before `found`.
fn unended(words: &[String], found: &str) -> Finding {
    let (directive, found) = (one_line(&words.join(" ")), one_line(found));
    finding!(
        "nginx_semicolon",
        "`{directive}` has no `;`: it is missing before `{found}`",
        directive,
        found
    )
}

fn unexpected(found: &str) -> Finding {
    finding!("nginx_unexpected", "unexpected `{found}`", found)
}

impl Tokens<'_> {
    fn step(&mut self) -> Option<char> {
        let next = self.text.next()?;
        self.line += u64::from(next == '\n');
        Some(next)
    }

    fn next(&mut self) -> Result<Option<Lexeme>, Note> {
        loop {
            let Some(first) = self.step() else { return Ok(None) };
            return Ok(Some(match first {
                space if space.is_ascii_whitespace() => continue,
                '#' => {
                    while self.text.peek().is_some_and(|next| *next != '\n') {
                        self.step();
                    }
                    continue;
                }
                ';' => Lexeme::Semicolon,
                '{' => Lexeme::Open,
                '}' => Lexeme::Close,
                '"' | '\'' => Lexeme::Word(self.quoted(first)?),
                first => Lexeme::Word(self.word(first)),
            }));
        }
    }

    fn quoted(&mut self, quote: char) -> Result<String, Note> {
        let begin = self.line;
        let mut word = String::new();
        while let Some(next) = self.step() {
            match next {
                end if end == quote => return Ok(word),
                '\\' => self.escaped(&mut word),
                next => word.push(next),
            }
        }
        Err(Note::widens(begin, finding!("nginx_quote", "the quote that begins here has no end")))
    }

    fn word(&mut self, first: char) -> String {
        let mut word = String::new();
        let mut next = Some(first);
        while let Some(letter) = next {
            match letter {
                '\\' => self.escaped(&mut word),
                letter => word.push(letter),
            }
            let is_variable = letter == '$' && self.text.peek() == Some(&'{');
            if is_variable {
                while let Some(part) = self.step() {
                    word.push(part);
                    if part == '}' {
                        break;
                    }
                }
            }
            let ends = |next: &char| next.is_ascii_whitespace() || matches!(next, ';' | '{');
            next = if self.text.peek().is_none_or(ends) { None } else { self.step() };
        }
        word
    }

    /// Appends the character that a backslash escapes; if it escapes none, appends both.
    fn escaped(&mut self, word: &mut String) {
        match self.step() {
            Some(plain @ ('"' | '\'' | '\\')) => word.push(plain),
            Some('t') => word.push('\t'),
            Some('r') => word.push('\r'),
            Some('n') => word.push('\n'),
            other => {
                word.push('\\');
                word.extend(other);
            }
        }
    }

    /// Skips code in Lua, up to the brace that ends it.
    fn skip_code(&mut self) -> Result<(), Note> {
        let begin = self.line;
        match lua::block_len(self.text.clone()) {
            Some(len) => {
                (0..len).for_each(|_| {
                    self.step();
                });
                Ok(())
            }
            None => {
                let problem = finding!("nginx_unclosed", "the block that begins here has no `}}`");
                Err(Note::widens(begin, problem))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<Vec<String>> {
        parse(text).expect("it is sound").into_iter().map(|directive| directive.words).collect()
    }

    #[test]
    fn words_are_those_that_nginx_reads() {
        assert_eq!(
            words("a b;\n# c;\nd \"e ; f\\\" {\" 'g h'; i${j}k l#m;"),
            [vec!["a", "b"], vec!["d", "e ; f\" {", "g h"], vec!["i${j}k", "l#m"]]
        );
        assert_eq!(
            words(r#"a /b\;c /\x \\ "t\t\"" ;"#),
            [vec!["a", r"/b\;c", r"/\x", r"\", "t\t\""]]
        );
        let block = parse("http {\n server { listen 80; }\n}").expect("it is sound");
        let server = &block[0].block.as_ref().expect("a block")[0];
        assert_eq!((server.name(), server.line), ("server", 2));
        let code = parse("content_by_lua_block { if x then y = { 1 } end } a;");
        assert_eq!(code.expect("it is sound").len(), 1);
    }

    #[test]
    fn a_directive_without_a_semicolon_is_named_with_what_follows() {
        for (text, line, directive, found) in [
            ("server {\n limit_req zone=a }", 2, "limit_req zone=a", "}"),
            (
                "server { limit_req zone=a burst=5\n proxy_pass http://up; }",
                1,
                "limit_req zone=a burst=5",
                "proxy_pass",
            ),
            (
                "limit_req_zone $host zone=a:1m rate=1r/s\n server { }",
                1,
                "limit_req_zone $host zone=a:1m rate=1r/s",
                "server",
            ),
            ("server {\n listen 80\n location / { } }", 2, "listen 80", "location"),
            ("limit_conn a 5\nindex a.html;", 1, "limit_conn a 5", "index"),
        ] {
            let note = parse(text).expect_err(text);
            let expected = format!("`{directive}` has no `;`: it is missing before `{found}`");
            assert_eq!((note.line, note.finding.to_string()), (Some(line), expected), "{text}");
        }
        for text in [
            "limit_req_zone\n $host\n zone=a:1m\n rate=1r/s;",
            "limit_req\n zone=a\n burst=5\n nodelay;",
            "limit_conn\n a\n 5;",
            "log_format main\n 'a'\n server\n b c d;",
            "server_name a\n b;",
        ] {
            assert!(parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn what_is_not_closed_is_named_with_its_line() {
        let deep = "a {".repeat(33);
        for (text, line, code) in [
            ("a {\n b {\n }\n", 1, "nginx_unclosed"),
            ("}", 1, "nginx_unexpected"),
            ("\n;", 2, "nginx_unexpected"),
            ("a\n b", 1, "nginx_unended"),
            ("a \"\n", 1, "nginx_quote"),
            ("a_by_lua_block {\n{", 1, "nginx_unclosed"),
            (&deep, 1, "nginx_depth"),
        ] {
            let note = parse(text).expect_err(text);
            assert_eq!((note.line, note.finding.code()), (Some(line), code), "{text}");
        }
    }
}
