//! How a kubeconfig is written (client-go's `clientcmd/api/v1`).

use std::fmt::Write as _;

use base64::Engine as _;

/// By what a user is known.
#[derive(Clone, Copy)]
pub enum Credential<'a> {
    /// A client certificate and its key, both PEM.
    Certificate {
        /// The certificate.
        certificate: &'a str,
        /// Its key.
        key: &'a str,
    },
    /// A bearer token.
    Token(&'a str),
}

/// A kubeconfig of one user of one server. `authority`: PEM; `server_name`: the name that the server's certificate is asked for by, where
/// that is not the address.
pub fn kubeconfig_text(
    server: &str,
    authority: &str,
    user: &str,
    credential: &Credential<'_>,
    server_name: Option<&str>,
) -> String {
    let encoded = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let user = plain(user);
    let mut text = format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: flatkube\n  cluster:\n    server: {server}\n    certificate-authority-data: {}\n",
        encoded(authority)
    );
    if let Some(name) = server_name {
        let _ = writeln!(text, "    tls-server-name: {name}");
    }
    let _ = write!(
        text,
        "contexts:\n\
         - name: flatkube\n  context:\n    cluster: flatkube\n    user: {user}\n\
         current-context: flatkube\n\
         users:\n\
         - name: {user}\n  user:\n"
    );
    let _ = match credential {
        Credential::Certificate { certificate, key } => writeln!(
            text,
            "    client-certificate-data: {}\n    client-key-data: {}",
            encoded(certificate),
            encoded(key)
        ),
        Credential::Token(token) => writeln!(text, "    token: {token}"),
    };
    text
}

/// A text in YAML: as it is where it can be nothing else, else in quotes, as JSON has it.
fn plain(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
    if text.starts_with(|first: char| first.is_ascii_lowercase()) && text.contains('-') && text.bytes().all(is_plain) {
        return text.to_owned();
    }
    serde_json::to_string(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_every_name_are_written_so_that_they_are_read_again() {
        for (name, wanted) in [
            ("kubernetes-admin", "kubernetes-admin"),
            ("no", "\"no\""),
            ("a: b", "\"a: b\""),
            ("o\"neil", "\"o\\\"neil\""),
            ("-a", "\"-a\""),
        ] {
            let text = kubeconfig_text("https://s", "ca", name, &Credential::Token("t"), Some("n"));
            assert!(
                text.contains(&format!("- name: {wanted}\n  user:\n    token: t\n")),
                "{text}"
            );
            assert!(text.contains("    tls-server-name: n\n"), "{text}");
        }
    }
}
