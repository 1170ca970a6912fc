//! What the keys of a zone are made of.

/// The attributes of a key such as `$binary_remote_addr$uri`; text between variables keeps values apart and no
/// more. The error is the first variable that policies cannot make keys of.
pub(super) fn read(key: &str) -> Result<Vec<String>, String> {
    let mut attributes: Vec<String> = Vec::new();
    let mut rest = key;
    while let Some((_, after)) = rest.split_once('$') {
        let (name, after) = variable(after);
        let attribute = attribute(name).ok_or_else(|| format!("${name}"))?;
        if !attributes.contains(&attribute) {
            attributes.push(attribute);
        }
        rest = after;
    }
    Ok(attributes)
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

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn variables_become_attributes() {
        for (key, expected) in [
            ("$binary_remote_addr", Ok(vec!["remote_ip"])),
            ("${remote_addr}:$uri", Ok(vec!["remote_ip", "path"])),
            ("$http_x_api_key|$host$host", Ok(vec!["header:x-api-key", "host"])),
            ("all", Ok(vec![])),
            ("$uri$arg_page", Err("$arg_page")),
            ("$http_", Err("$http_")),
            ("$", Err("$")),
        ] {
            let expected = expected.map(|names| names.into_iter().map(str::to_owned).collect());
            assert_eq!(read(key), expected.map_err(str::to_owned), "{key}");
        }
    }
}
