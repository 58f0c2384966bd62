//! Progress bars: on standard error, on a terminal alone, and not with `--quiet`.

use indicatif::{ProgressBar, ProgressStyle};

/// What every command with a progress bar takes.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Quiet {
    /// No progress bar and no summary; errors and what was asked for are still written
    #[arg(short, long)]
    quiet: bool,
}

impl Quiet {
    pub(super) fn is_quiet(self) -> bool {
        self.quiet
    }

    /// A bar of bytes; `None`: nobody knows how many.
    pub(super) fn bytes(self, len: Option<u64>, what: &'static str) -> ProgressBar {
        let template = match len {
            Some(_) => "{msg} {wide_bar} {bytes}/{total_bytes}  {bytes_per_sec}  {eta} left",
            None => "{msg} {spinner} {bytes}  {bytes_per_sec}",
        };
        self.bar(len, template, what)
    }

    /// A bar of objects; `None`: nobody knows how many.
    pub(super) fn objects(self, len: Option<u64>, what: &'static str) -> ProgressBar {
        let template = match len {
            Some(_) => "{msg} {wide_bar} {human_pos}/{human_len}  {per_sec}  {eta} left",
            None => "{msg} {spinner} {human_pos} objects  {per_sec}",
        };
        self.bar(len, template, what)
    }

    fn bar(self, len: Option<u64>, template: &str, what: &'static str) -> ProgressBar {
        if self.quiet {
            return ProgressBar::hidden();
        }
        let bar = match len {
            Some(len) => ProgressBar::new(len),
            None => ProgressBar::new_spinner(),
        };
        bar.set_style(ProgressStyle::with_template(template).expect("the template is a constant"));
        bar.set_message(what);
        bar
    }
}
