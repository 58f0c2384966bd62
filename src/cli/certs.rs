//! `flatkube certs`: the certificates of a data directory.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Subcommand;

use super::{Exit, Failure, kubeconfig};
use crate::auth::{Described, certificate_files, describe, discard};

/// Arguments of `flatkube certs`.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Print the certificates of a data directory and when they end
    Check(Check),
    /// Have the certificates of a data directory made anew
    Rotate(Rotate),
}

/// Arguments of `flatkube certs check`.
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Prints each certificate of a data directory: its subject, the names that it is for, and when it ends. A server \
        renews its own certificates 30 days before they end, without a restart; the authorities last ten years and are made \
        anew by 'flatkube certs rotate --ca' alone.",
    after_long_help = "Exit status: 0 when all is well; 1 when a certificate ends within --within, has ended, or is not of the key beside it."
)]
pub(super) struct Check {
    /// The data directory
    #[arg(long, value_name = "DIR", default_value = super::server::DATA_DIR)]
    data_dir: PathBuf,

    /// Fail when a certificate ends within this time (such as 7d, 720h)
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = kubeconfig::lifetime)]
    within: u32,

    /// Files to look at in place of the data directory's, e.g. those of --tls-cert-file
    #[arg(value_name = "FILE", conflicts_with = "data_dir")]
    files: Vec<PathBuf>,
}

/// Arguments of `flatkube certs rotate`.
#[derive(Debug, clap::Args)]
#[command(
    long_about = "Has the certificates that a data directory's authorities signed made anew, with new keys: the server's own, those \
        that it shows kubelets and aggregated API servers, and the administrator's. A server that runs takes them up within a \
        minute and writes admin.kubeconfig anew; otherwise the next start does. Connections that are open go on. Certificates that were \
        given out stay good until they end: also an administrator's that was copied elsewhere.",
    after_long_help = "\
With --ca the authorities themselves are made anew. That shuts out everybody who knows the cluster by the old ones: every kubeconfig, every \
kubelet and every Pod that holds the old certificate no longer believes this server, and every client certificate that the old authority \
signed is refused. Nodes have to join again, kubeconfigs have to be made anew; Pods get the new authority with kube-root-ca.crt, and those \
that read it only at their start have to be started again. Tokens of service accounts stay good: their key is another one. It is what is to \
be done when the authority's key (pki/ca.key) was stolen, and before it ends after ten years. The server must be stopped for it."
)]
pub(super) struct Rotate {
    /// The data directory
    #[arg(long, value_name = "DIR", default_value = super::server::DATA_DIR)]
    data_dir: PathBuf,

    /// Make the certificate authorities anew, too: everybody who was let in by a certificate is shut out (see --help)
    #[arg(long)]
    ca: bool,
}

pub(super) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Check(arguments) => check(arguments),
        Command::Rotate(arguments) => rotate(arguments),
    }
}

fn check(arguments: &Check) -> Result<(), Failure> {
    let files = if arguments.files.is_empty() {
        certificate_files(&arguments.data_dir)
    } else {
        arguments.files.clone()
    };
    if files.is_empty() {
        return Err(nothing(&arguments.data_dir));
    }
    let found = describe(&files).map_err(|error| Failure::new(Exit::Failure, error.to_string()))?;
    let now_s = jiff::Timestamp::now().as_second();
    let mut text = String::new();
    let mut faults = Vec::new();
    for one in &found {
        text.push_str(&told(one, now_s));
        if let Some(fault) = fault(one, now_s, arguments.within) {
            faults.push(fault);
        }
    }
    super::store::print(text.as_bytes())?;
    if faults.is_empty() {
        return Ok(());
    }
    Err(Failure::new(Exit::Failure, faults.join("; ")).advise(
        "a running server renews its own certificates by itself; 'flatkube certs rotate' has them made anew at once",
    ))
}

fn nothing(data_dir: &std::path::Path) -> Failure {
    let message = format!("there are no certificates in {}", data_dir.join("pki").display());
    Failure::new(Exit::Failure, message)
        .advise("they are made when a server starts there first: flatkube server --data-dir DIR")
}

/// What a person reads of a certificate.
fn told(one: &Described, now_s: i64) -> String {
    let mut text = format!("{}\n  subject  {}\n", one.path.display(), one.subject);
    if !one.names.is_empty() {
        let _ = writeln!(text, "  names    {}", one.names.join(", "));
    }
    let ends = jiff::Timestamp::from_second(one.ends_s).map_or_else(|_| "?".to_owned(), |at| at.to_string());
    let days = (one.ends_s - now_s).div_euclid(24 * 3600);
    let left = if one.ends_s <= now_s {
        "it has ended".to_owned()
    } else {
        format!("in {days} days")
    };
    let _ = writeln!(text, "  ends     {ends}, {left}");
    text
}

/// What is wrong with a certificate; `None`: nothing.
fn fault(one: &Described, now_s: i64, within_s: u32) -> Option<String> {
    let path = one.path.display();
    if one.has_its_key == Some(false) {
        return Some(format!("{path} is not of the key beside it"));
    }
    if one.ends_s <= now_s {
        return Some(format!("{path} has ended"));
    }
    (one.ends_s - now_s <= i64::from(within_s)).then(|| format!("{path} ends soon"))
}

fn rotate(arguments: &Rotate) -> Result<(), Failure> {
    if certificate_files(&arguments.data_dir).is_empty() {
        return Err(nothing(&arguments.data_dir));
    }
    // Nobody may start on half of the old authority, and who runs would not take up the new one.
    let _held = if arguments.ca {
        Some(super::store::hold(&arguments.data_dir)?)
    } else {
        None
    };
    let removed =
        discard(&arguments.data_dir, arguments.ca).map_err(|error| Failure::new(Exit::Failure, error.to_string()))?;
    let mut text = String::new();
    for path in removed
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "crt"))
    {
        let _ = writeln!(text, "removed {} and its key", path.display());
    }
    text.push_str(if arguments.ca {
        "New authorities and certificates are made when the server starts. Every kubeconfig, node and client certificate of the old \
         authority is refused from then on; hand out new ones (flatkube kubeconfig create, flatkube token create).\n"
    } else {
        "A running server makes new ones within a minute; otherwise the next start does. admin.kubeconfig is written anew.\n"
    });
    super::store::print(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(ends_s: i64, has_its_key: Option<bool>) -> Described {
        Described {
            path: "a.crt".into(),
            subject: "CN=a".into(),
            names: vec!["b".into()],
            ends_s,
            has_its_key,
        }
    }

    #[test]
    fn what_ends_soon_has_ended_or_has_another_key_is_told() {
        assert_eq!(fault(&one(200, Some(true)), 100, 99), None);
        assert_eq!(fault(&one(200, None), 100, 100).as_deref(), Some("a.crt ends soon"));
        assert_eq!(fault(&one(100, None), 100, 0).as_deref(), Some("a.crt has ended"));
        assert!(fault(&one(200, Some(false)), 100, 0).is_some());
        let text = told(&one(100 + 3 * 24 * 3600, None), 100);
        assert!(
            text.contains("CN=a") && text.contains("names    b") && text.contains("in 3 days"),
            "{text}"
        );
    }
}
