//! The commands of the `flatkube` binary.
//!
//! One file a command. Each command is a `run` that returns a [`Failure`]: what went wrong, what to do about it, and
//! the [`Exit`] code that scripts can tell apart.

mod auditing;
mod authentication;
mod certs;
mod client;
mod completions;
mod credential;
mod failure;
mod kubeconfig;
mod kubelets;
mod outbound;
mod plugins;
mod privileges;
mod progress;
mod seed;
mod server;
mod store;
mod tls;
mod token;
mod tuning;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use tracing_subscriber::filter::LevelFilter;

pub use failure::{Exit, Failure};

/// What `flatkube --version` says: our version, and the level of the Kubernetes API that is served.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (serves the Kubernetes API, level v1.36)");

/// The command line of `flatkube`.
#[derive(Debug, Parser)]
#[command(
    name = "flatkube",
    version = VERSION,
    about = "A Kubernetes API server in one binary, served from a zero-copy storage engine",
    long_about = "flatkube serves the Kubernetes API (level v1.36) out of a storage engine of its own. The bytes on \
        disk are the bytes on the wire: an object becomes JSON once, when it is written, and every get, list, \
        selector, Table and watch is answered from memory-mapped files without parsing it again.",
    after_help = "Run 'flatkube help COMMAND' for the manual of a command.",
    after_long_help = AFTER_HELP,
    max_term_width = 100
)]
pub struct CommandLine {
    #[command(subcommand)]
    command: Command,

    /// The least severe messages that are written to standard error
    #[arg(long, global = true, value_name = "LEVEL", value_enum, default_value_t = LogLevel::Info, env = "FLATKUBE_LOG")]
    log: LogLevel,
}

const AFTER_HELP: &str = "\
Examples:
  Serve, with everything kept under ./data:
      flatkube server --data-dir ./data

  Talk to it, in another shell:
      export KUBECONFIG=./data/admin.kubeconfig
      kubectl get pods --all-namespaces

  A throw-away control plane for a test run:
      flatkube server --ephemeral --bind 127.0.0.1:0

  Fill it with 100,000 Pods:
      flatkube seed --objects 100000 --kubeconfig ./data/admin.kubeconfig

  Look into the files after the server has been stopped:
      flatkube store verify ./data

Exit status:
  0  success
  1  a failure that has no number of its own
  2  the command line is wrong
  3  the data directory was written in a format newer than this program knows
  4  the data directory is in use by another process
  5  the data directory (or a file in it) may not be read or written
  6  the data directory is damaged; the message names file and offset
  7  the disk is full
  8  the address is in use";

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the Kubernetes API
    Server(Box<server::Arguments>),
    /// Create many realistic objects through the API
    Seed(seed::Arguments),
    /// Look into the data directory of a stopped server
    #[command(subcommand)]
    Store(store::Command),
    /// Print the kubeconfig of a data directory's administrator, or make one for somebody else
    Kubeconfig(kubeconfig::Arguments),
    /// Look at the certificates of a data directory, have them made anew
    #[command(subcommand)]
    Certs(certs::Command),
    /// Make tokens by which machines join
    #[command(subcommand)]
    Token(token::Command),
    /// Print completions for a shell
    Completions(completions::Arguments),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Off => LevelFilter::OFF,
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
            LogLevel::Trace => LevelFilter::TRACE,
        }
    }
}

/// Runs the command of this process's command line and says how the process should exit.
pub fn main() -> ExitCode {
    let command_line = CommandLine::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .with_max_level(LevelFilter::from(command_line.log))
        .init();
    if let Err(error) = crate::store::explain_bus_errors() {
        tracing::warn!(%error, "a disk error in a mapped file will end the process without a word");
    }
    match command_line.command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report();
            failure.exit().into()
        }
    }
}

impl Command {
    fn run(self) -> Result<(), Failure> {
        match self {
            Command::Server(arguments) => server::run(&arguments),
            Command::Seed(arguments) => seed::run(arguments),
            Command::Store(command) => store::run(&command),
            Command::Kubeconfig(arguments) => kubeconfig::run(&arguments),
            Command::Certs(command) => certs::run(&command),
            Command::Token(command) => token::run(&command),
            Command::Completions(arguments) => completions::run(&arguments),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn the_version_names_the_kubernetes_level() {
        let version = CommandLine::command().render_version();
        assert!(version.contains("v1.36"), "{version}");
    }

    #[test]
    fn every_flag_of_the_contract_is_accepted() {
        for line in [
            "flatkube server",
            "flatkube server --data-dir d --bind 127.0.0.1:6443 --http-bind 127.0.0.1:8080 --token-auth-file t.csv \
             --durability fsync --history-bytes 1048576 --controllers off",
            "flatkube server --ephemeral --durability os --history-bytes 1GiB",
            "flatkube seed --objects 10",
            "flatkube seed --objects 10 --kind configmaps --namespaces 3 --kubeconfig k",
            "flatkube store stats d",
            "flatkube store verify d",
            "flatkube store verify d --repair --dry-run --quiet",
            "flatkube store verify d --repair --accept-loss",
            "flatkube store inspect d pods default/web-0",
            "flatkube store export d",
            "flatkube store export --from-kubeconfig k --context c --namespace n --output o",
            "flatkube store compact",
            "flatkube store compact d --keep-history 10m --quiet",
            "flatkube store import",
            "flatkube store import f --overwrite --dry-run --quiet",
            "flatkube store import --from-kubeconfig k --from-context c --skip-existing --writers 4",
            "flatkube kubeconfig",
            "flatkube kubeconfig create --user a --group b --group c --duration 30d --data-dir d",
            "flatkube kubeconfig create --user a --kubeconfig k --server https://s:6443",
            "flatkube certs check --data-dir d --within 720h",
            "flatkube certs check a.crt",
            "flatkube certs rotate --data-dir d --ca",
            "flatkube token create --ttl 0 --output join --kubeconfig k",
            "flatkube server --tls-san a.example,10.0.0.1 --tls-cert-file c --tls-private-key-file k \
             --tls-sni-cert-key c,k:*.a.b --tls-min-version VersionTLS13",
            "flatkube completions bash",
        ] {
            CommandLine::try_parse_from(line.split_whitespace()).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }

    #[test]
    fn plain_http_is_refused_beyond_loopback() {
        let line = ["flatkube", "server", "--http-bind", "0.0.0.0:8080"];
        let error = CommandLine::try_parse_from(line).expect_err("not loopback");
        assert!(error.to_string().contains("loopback"), "{error}");
    }

    #[test]
    fn an_ephemeral_server_takes_no_data_directory() {
        let line = ["flatkube", "server", "--ephemeral", "--data-dir", "d"];
        CommandLine::try_parse_from(line).expect_err("they exclude each other");
    }
}
