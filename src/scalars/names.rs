//! Names and labels: which texts may be one, and what kube-apiserver says about those that may not.
//! Rules: <https://kubernetes.io/docs/concepts/overview/working-with-objects/names/>, RFC 1123, RFC 1035.

const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
    '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
    start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const DNS_1035_RULE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
    alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
    validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
    '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
    for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const PREFIX_OF_KEY: &str = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";

/// Longest label (RFC 1123) and longest part of a label key, in bytes.
const LABEL_LEN_MAX: usize = 63;
/// Longest subdomain (RFC 1123), in bytes.
pub(crate) const SUBDOMAIN_LEN_MAX: usize = 253;

/// What is wrong with an RFC 1123 subdomain.
pub(crate) fn subdomain(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > SUBDOMAIN_LEN_MAX {
        wrong.push(too_long(SUBDOMAIN_LEN_MAX));
    }
    if !is_subdomain(text) {
        wrong.push(SUBDOMAIN_RULE.to_owned());
    }
    wrong
}

/// What is wrong with an RFC 1123 label.
pub(crate) fn label(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > LABEL_LEN_MAX {
        wrong.push(too_long(LABEL_LEN_MAX));
    }
    if !is_label(text) {
        wrong.push(
            if is_subdomain(text) {
                "must not contain dots"
            } else {
                LABEL_RULE
            }
            .to_owned(),
        );
    }
    wrong
}

/// What is wrong with a path segment; a prefix of one may be dots alone.
pub(crate) fn path_segment(text: &str, prefix: bool) -> Vec<String> {
    if !prefix && (text == "." || text == "..") {
        return vec![format!("may not be '{text}'")];
    }
    let bad = ['/', '%'].into_iter().filter(|&character| text.contains(character));
    bad.map(|character| format!("may not contain '{character}'")).collect()
}

/// What is wrong with an RFC 1035 label, which begins with a letter.
pub(crate) fn dns_1035_label(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > LABEL_LEN_MAX {
        wrong.push(too_long(LABEL_LEN_MAX));
    }
    let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let fine = text.bytes().all(known)
        && text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase())
        && !text.ends_with('-');
    if !fine {
        wrong.push(DNS_1035_RULE.to_owned());
    }
    wrong
}

/// What is wrong with a qualified name, the key of a label or annotation: `name` or `example.com/name`.
pub(crate) fn qualified_name(text: &str) -> Vec<String> {
    if is_qualified_name(text) {
        return Vec::new();
    }
    let mut wrong = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>()[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                wrong.push("prefix part must be non-empty".to_owned());
            } else {
                wrong.extend(subdomain(prefix).into_iter().map(|what| format!("prefix part {what}")));
            }
            name
        }
        _ => return vec![format!("a valid label key {QUALIFIED_RULE}{PREFIX_OF_KEY}")],
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_LEN_MAX {
        wrong.push(format!("name part {}", too_many_bytes(LABEL_LEN_MAX)));
    }
    if !is_qualified(name) {
        wrong.push(format!("name part {QUALIFIED_RULE}"));
    }
    wrong
}

/// Whether a text is a qualified name, told without words. Each part is short enough where the whole is.
fn is_qualified_name(text: &str) -> bool {
    let (prefix, name) = text
        .split_once('/')
        .map_or((None, text), |(prefix, name)| (Some(prefix), name));
    name.len() <= LABEL_LEN_MAX
        && is_qualified(name)
        && prefix.is_none_or(|prefix| prefix.len() <= SUBDOMAIN_LEN_MAX && is_subdomain(prefix))
}

/// What is wrong with the value of a label.
pub(crate) fn label_value(text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if text.len() > LABEL_LEN_MAX {
        wrong.push(too_many_bytes(LABEL_LEN_MAX));
    }
    if !text.is_empty() && !is_qualified(text) {
        wrong.push(LABEL_VALUE_RULE.to_owned());
    }
    wrong
}

fn is_label(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && !text.ends_with('-')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

/// As a subdomain, but labels may have underscores, at their ends too: search paths of DNS.
pub(crate) fn is_underscored_subdomain(text: &str) -> bool {
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
    text.len() <= SUBDOMAIN_LEN_MAX
        && text.split('.').all(|label| {
            edge(label.bytes().next())
                && edge(label.bytes().next_back())
                && label.bytes().all(|byte| byte == b'-' || edge(Some(byte)))
        })
}

fn is_qualified(text: &str) -> bool {
    let ends = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    ends(text.bytes().next())
        && ends(text.bytes().next_back())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

pub(crate) fn too_long(max: usize) -> String {
    format!("must be no more than {max} characters")
}

fn too_many_bytes(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_takes_and_refuses_what_it_should() {
        for good in ["a", "a-b.c", "1a", "x.y.z"] {
            assert_eq!(subdomain(good), [""; 0], "{good}");
        }
        for bad in ["", "A", "a_b", "-a", "a-", "a..b", ".a", "é"] {
            assert_eq!(subdomain(bad).len(), 1, "{bad}");
        }
        assert_eq!(label("a.b"), ["must not contain dots"]);
        assert_eq!(label(&"a".repeat(64)), ["must be no more than 63 characters"]);
        assert_eq!(path_segment("..", false), ["may not be '..'"]);
        assert_eq!(
            path_segment("a/b%", false),
            ["may not contain '/'", "may not contain '%'"]
        );
        assert_eq!(qualified_name("example.com/a_B.c"), [""; 0]);
        assert_eq!(qualified_name("/a"), ["prefix part must be non-empty"]);
        assert_eq!(label_value(""), [""; 0]);
        assert_eq!(label_value("a b").len(), 1);
    }
}
