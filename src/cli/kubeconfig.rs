//! `flatkube kubeconfig`, and reading a kubeconfig as a client does.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Exit, Failure};
use crate::remote::{self, Connection, KubeconfigError};

/// Arguments of `flatkube kubeconfig`.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    long_about = "Prints the kubeconfig that a server wrote into its data directory: the address, the certificate \
        authority and a client certificate of the administrator (group system:masters). Whoever reads it may do \
        everything on that server.",
    after_long_help = "\
Examples:
  Use it in this shell:
      export KUBECONFIG=$(flatkube kubeconfig --data-dir ./data --path)

  Take it to another machine, where the server has another name:
      flatkube kubeconfig --data-dir ./data --server https://kube.example.org:6443 > admin.kubeconfig"
)]
pub(super) struct Arguments {
    /// The server's data directory
    #[arg(long, value_name = "DIR", default_value = super::server::DATA_DIR)]
    data_dir: PathBuf,

    /// Put this address in place of the server's own
    #[arg(long, value_name = "URL", conflicts_with = "path")]
    server: Option<String>,

    /// Print the path of the file instead of what is in it
    #[arg(long)]
    path: bool,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Make a kubeconfig with a client certificate for a user
    Create(super::credential::Create),
}

/// The name of the kubeconfig file in a data directory.
pub(super) const FILE_NAME: &str = "admin.kubeconfig";

/// The kubeconfig that a server with the default data directory writes.
pub(super) fn default_path() -> PathBuf {
    PathBuf::from(super::server::DATA_DIR).join(FILE_NAME)
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(Command::Create(arguments)) = &arguments.command {
        return super::credential::run(arguments);
    }
    let path = arguments.data_dir.join(FILE_NAME);
    let text = fs::read_to_string(&path).map_err(|error| {
        Failure::io("read", &path, &error).advise(format!(
            "it is written when the server starts: flatkube server --data-dir {}",
            arguments.data_dir.display()
        ))
    })?;
    if arguments.path {
        let path = path
            .canonicalize()
            .map_err(|error| Failure::io("resolve", &path, &error))?;
        return super::store::print(format!("{}\n", path.display()).as_bytes());
    }
    let Some(server) = &arguments.server else {
        return super::store::print(text.as_bytes());
    };
    // The file is ours and holds each key on a line of its own, so one line is exchanged and the rest stays as it is.
    let mut answer = String::with_capacity(text.len() + server.len());
    for line in text.lines() {
        match line.find("server: ") {
            Some(start) if line[..start].bytes().all(|byte| byte == b' ' || byte == b'-') => {
                answer.push_str(&line[..start]);
                answer.push_str("server: ");
                answer.push_str(server);
            }
            _ => answer.push_str(line),
        }
        answer.push('\n');
    }
    super::store::print(answer.as_bytes())
}

/// A time to live in whole seconds, of a text such as `90m`, `24h` or `30d`; days have 24 hours.
pub(super) fn lifetime(text: &str) -> Result<u32, String> {
    if text == "0" {
        return Ok(0);
    }
    let span: jiff::Span = text.parse().map_err(|error: jiff::Error| error.to_string())?;
    let lasts = span
        .to_duration(jiff::SpanRelativeTo::days_are_24_hours())
        .map_err(|error| error.to_string())?;
    u32::try_from(lasts.as_secs()).map_err(|_| "not a time from nothing to 136 years".to_owned())
}

/// Reads the current context of the kubeconfig at `path`. Paths in it are relative to the file, as in client-go.
pub(super) fn read(path: &Path) -> Result<Connection, Failure> {
    read_context(path, None)
}

/// [`read`] of a context, or of the current one.
pub(super) fn read_context(path: &Path, context: Option<&str>) -> Result<Connection, Failure> {
    remote::read_kubeconfig(path, context).map_err(|error| match &error {
        KubeconfigError::Read { path, source } => Failure::io("read", path, source),
        KubeconfigError::Wrong { .. } => Failure::new(Exit::Usage, error.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
apiVersion: v1
kind: Config
current-context: two
clusters:
- name: here
  cluster:
    server: https://127.0.0.1:6443/
    certificate-authority-data: Y2E=
contexts:
- name: one
  context: {cluster: here, user: nobody}
- name: two
  context: {cluster: here, user: admin}
users:
- name: admin
  user:
    client-certificate: admin.crt
    client-key-data: a2V5
    token: secret
";

    #[test]
    fn the_current_context_is_read_with_its_files() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("admin.crt"), "certificate").expect("written");
        let path = folder.path().join("config");
        fs::write(&path, TEXT).expect("written");
        let connection = read(&path).expect("a kubeconfig");
        assert_eq!(
            connection,
            Connection {
                server: "https://127.0.0.1:6443".into(),
                authority: Some(b"ca".to_vec()),
                certificate: Some((b"certificate".to_vec(), b"key".to_vec())),
                token: Some("secret".into()),
                server_name: None,
            }
        );
    }

    #[test]
    fn a_certificate_without_a_key_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("admin.crt"), "certificate").expect("written");
        let path = folder.path().join("config");
        fs::write(&path, TEXT.replace("client-key-data: a2V5", "")).expect("written");
        let failure = read(&path).expect_err("half a pair");
        assert_eq!(failure.exit(), Exit::Usage);
        assert!(failure.to_string().contains("must stand together"), "{failure}");
    }

    #[test]
    fn lifetimes_are_spans_of_days_hours_minutes_and_seconds() {
        for (text, wanted_s) in [
            ("0", 0),
            ("90m", 5400),
            ("24h", 86_400),
            ("30d", 2_592_000),
            ("1d12h", 129_600),
        ] {
            assert_eq!(lifetime(text), Ok(wanted_s), "{text}");
        }
        for wrong in ["", "x", "-1h", "5", "999999d"] {
            assert!(lifetime(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_missing_context_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config");
        fs::write(&path, TEXT.replace("current-context: two", "current-context: three")).expect("written");
        assert!(read(&path).expect_err("no such context").to_string().contains("three"));
    }
}
