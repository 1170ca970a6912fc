//! The key of a zone, as attributes of requests.

use std::collections::BTreeSet;

use sluicegate_policy::{Finding, finding};

/// The key of a zone as policies make it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Key {
    /// Attributes of requests, each once.
    pub(super) attributes: Vec<String>,
    /// `$server_name` is a part of the key: each server has its own budgets.
    pub(super) is_of_server: bool,
    /// The key is `$server_name` alone.
    pub(super) is_only_server: bool,
    /// `$uri`, which `rewrite` changes, is a part of the key.
    pub(super) is_of_uri: bool,
    /// Differences between the two, by which as much passes or less.
    pub(super) notes: Vec<Finding>,
    /// Differences by which more may pass.
    pub(super) wider: Vec<Finding>,
}

/// The attributes of a key such as `$binary_remote_addr$uri`; text between variables only keeps values apart. The error
/// is the first variable that policies cannot make keys of. Variables that are `redefined` by the configuration have
/// other values there.
pub(super) fn read(key: &str, redefined: &BTreeSet<String>) -> Result<Key, String> {
    let mut found = Key { wider: joined(key).into_iter().collect(), ..Key::default() };
    // The variables, if all of them are empty where the request does not have something.
    let mut empty: Option<Vec<String>> = Some(Vec::new());
    let mut rest = key;
    while let Some((before, after)) = rest.split_once('$') {
        let (name, after) = variable(after);
        if !before.is_empty() {
            empty = None;
        }
        rest = after;
        if name == "server_name" {
            found.is_of_server = true;
            continue;
        }
        let is_known = !redefined.contains(&name.to_ascii_lowercase());
        let attribute = attribute(name).filter(|_| is_known).ok_or_else(|| format!("${name}"))?;
        found.notes.extend(note(name));
        found.wider.extend(wider(name));
        found.is_of_uri |= matches!(name, "uri" | "document_uri");
        match &mut empty {
            Some(names) if is_optional(name) => names.push(format!("${name}")),
            _ => empty = None,
        }
        if !found.attributes.contains(&attribute) {
            found.attributes.push(attribute);
        }
    }
    found.is_only_server = matches!(key, "$server_name" | "${server_name}");
    if let Some(names) = empty.filter(|names| !names.is_empty() && rest.is_empty()) {
        let variables = names.join("");
        found.notes.push(finding!(
            "nginx_empty_key",
            "nginx does not count requests whose `{variables}` is empty; here they share one budget",
            variables
        ));
    }
    Ok(found)
}

/// The name at the beginning, `uri` or `{uri}`, and what follows.
fn variable(text: &str) -> (&str, &str) {
    if let Some((name, after)) = text.strip_prefix('{').and_then(|text| text.split_once('}')) {
        return (name, after);
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let end = text.bytes().position(|byte| !is_name(byte)).unwrap_or(text.len());
    text.split_at(end)
}

fn attribute(variable: &str) -> Option<String> {
    let attribute = match variable {
        "binary_remote_addr" | "remote_addr" => "remote_ip",
        "uri" | "document_uri" | "request_uri" => "path",
        "request_method" => "method",
        "host" | "http_host" => "host",
        "http_user_agent" => "user_agent",
        other => {
            let header = other.strip_prefix("http_").filter(|name| !name.is_empty())?;
            return Some(format!("header:{}", header.to_ascii_lowercase().replace('_', "-")));
        }
    };
    Some(attribute.to_owned())
}

/// Returns whether a request may lack this variable.
fn is_optional(variable: &str) -> bool {
    variable.starts_with("http_") && variable != "http_host"
}

/// Values that run into one another: nginx joins them, so that `12` and `3` are `1` and `23`; policies keep them apart.
fn joined(key: &str) -> Option<Finding> {
    let mut before: Option<&str> = None;
    let mut rest = key;
    while let Some((text, after)) = rest.split_once('$') {
        let (name, after) = variable(after);
        if let Some(before) = before
            && run_together(before, text, name, after.is_empty())
        {
            return Some(finding!(
                "nginx_joined",
                "nginx joins the values of `{key}`, so that some requests share a budget which have their own here",
                key
            ));
        }
        (before, rest) = (Some(name), after);
    }
    None
}

/// Returns whether the values of `before` and `name`, with `text` between them, can run together so that their border
/// is lost.
fn run_together(before: &str, text: &str, name: &str, is_last: bool) -> bool {
    // The length of an address in bytes is known.
    if before == "binary_remote_addr" || name == "binary_remote_addr" && is_last {
        return false;
    }
    let is_bounded = matches!(before, "remote_addr" | "host" | "server_name" | "request_method");
    let is_of_name = |char: char| char.is_ascii_alphanumeric() || ".:-_[]".contains(char);
    let begins_apart = match text.chars().next() {
        Some(first) => !is_of_name(first),
        None => matches!(name, "uri" | "document_uri" | "request_uri"),
    };
    !(is_bounded && begins_apart)
}

/// The difference between an attribute and its variable, if more may pass by it.
fn wider(variable: &str) -> Option<Finding> {
    (variable.eq_ignore_ascii_case("http_x_forwarded_for")).then(|| {
        finding!(
            "nginx_forwarded_for",
            "`$http_x_forwarded_for`: a gateway adds an address to this header, so that each has a budget of its own; use `remote_ip` with `http.trusted_hops`"
        )
    })
}

/// The difference between an attribute and its variable.
fn note(variable: &str) -> Option<Finding> {
    match variable {
        "request_uri" => Some(finding!(
            "nginx_request_uri",
            "`$request_uri` has the query, `path` does not: requests that differ in it share a budget here"
        )),
        "http_host" => Some(finding!(
            "nginx_http_host",
            "`$http_host` has the port and the case of the request, `host` does not: requests that differ in them share a budget here"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_policy::Finding;

    use super::Key;

    fn read(key: &str) -> Result<Key, String> {
        super::read(key, &["http_x_plan".to_owned()].into())
    }

    #[test]
    fn variables_become_attributes() {
        for (key, expected) in [
            ("$binary_remote_addr", Ok(vec!["remote_ip"])),
            ("${remote_addr}:$uri", Ok(vec!["remote_ip", "path"])),
            ("$http_x_api_key|$host$host", Ok(vec!["header:x-api-key", "host"])),
            ("all", Ok(vec![])),
            ("$server_name$uri", Ok(vec!["path"])),
            ("$uri$arg_page", Err("$arg_page")),
            ("$http_", Err("$http_")),
            ("$http_X_plan", Err("$http_X_plan")),
            ("$", Err("$")),
        ] {
            let expected = expected.map(|names| names.into_iter().map(str::to_owned).collect());
            let found = read(key).map(|key| key.attributes);
            assert_eq!(found, expected.map_err(str::to_owned), "{key}");
        }
    }

    #[test]
    fn a_key_that_can_be_empty_has_a_note() {
        let codes = |key| -> Vec<_> {
            let Key { notes, .. } = read(key).expect("it can be read");
            notes.iter().map(Finding::code).collect()
        };
        assert_eq!(codes("$http_x_user"), ["nginx_empty_key"]);
        assert_eq!(codes("$http_a$http_user_agent"), ["nginx_empty_key"]);
        assert_eq!(codes("$request_uri"), ["nginx_request_uri"]);
        for never in ["$binary_remote_addr$http_x_user", "a$http_x_user", "$http_x_user-", "all"] {
            assert!(codes(never).is_empty(), "{never}");
        }
    }

    #[test]
    fn values_that_run_into_one_another_may_let_more_pass() {
        let codes = |key| -> Vec<_> {
            let Key { wider, .. } = read(key).expect("it can be read");
            wider.iter().map(Finding::code).collect()
        };
        for joined in
            ["$http_a$http_b", "$uri$http_b", "$http_a-$host", "$host-$http_a", "$uri$host"]
        {
            assert_eq!(codes(joined), ["nginx_joined"], "{joined}");
        }
        for apart in [
            "$binary_remote_addr$http_a",
            "$http_a$binary_remote_addr",
            "$host$uri",
            "$server_name$request_uri",
            "$remote_addr|$http_a",
            "$host",
        ] {
            assert!(codes(apart).is_empty(), "{apart}");
        }
        assert_eq!(codes("$http_x_forwarded_for"), ["nginx_forwarded_for"]);
    }

    #[test]
    fn the_name_of_a_server_is_a_part_of_its_policies() {
        for (key, is_only) in [
            ("$server_name", true),
            ("${server_name}", true),
            ("$server_name$uri", false),
            ("$server_name/", false),
        ] {
            let key = read(key).expect("it can be read");
            assert_eq!((key.is_of_server, key.is_only_server), (true, is_only), "{key:?}");
        }
    }
}
