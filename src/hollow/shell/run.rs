//! What a script comes to.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::arithmetic;
use super::parse::{self, Block, Node, Part, Word};

/// Commands that one script may come to.
const STEPS_MAX: usize = 2000;
/// What it prints, bytes.
const PRINTED_MAX: usize = 4096;
/// A script longer than this is not looked at, bytes.
const SCRIPT_MAX: usize = 64 * 1024;
/// How deep scripts may run others.
const DEPTH_MAX: usize = 6;
/// Files that are remembered on all nodes; then all are forgotten. About 150 bytes a file: 1.5 MB.
const FILES_MAX: usize = 10_000;

/// Files that scripts have made, and which run made each first: a run does not see its own, so that looking at it again comes to the
/// same.
static FILES: Mutex<Option<HashMap<String, String>>> = Mutex::new(None);

/// Which files there are.
pub(in crate::hollow) struct Disk<'a> {
    /// A name for a file that all have who see it.
    pub(in crate::hollow) of: &'a dyn Fn(&str) -> String,
    /// A name for this run; none makes no files.
    pub(in crate::hollow) run: String,
}

impl Disk<'_> {
    fn has(&self, path: &str) -> bool {
        let files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        let maker = files.as_ref().and_then(|files| files.get(&(self.of)(path)));
        maker.is_some_and(|maker| *maker != self.run)
    }

    fn make(&self, path: &str) {
        if self.run.is_empty() {
            return;
        }
        let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        let files = files.get_or_insert_default();
        if files.len() >= FILES_MAX {
            files.clear();
        }
        files.entry((self.of)(path)).or_insert_with(|| self.run.clone());
    }
}

/// How a command ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::hollow) enum End {
    Code(i64),
    /// It does not.
    Forever,
    /// Who knows?
    Unknown,
}

/// What a command came to.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::hollow) struct Ended {
    pub(in crate::hollow) end: End,
    /// How long it slept, milliseconds.
    pub(in crate::hollow) slept_ms: i64,
    pub(in crate::hollow) printed: String,
    /// Files and what went into them.
    pub(in crate::hollow) written: Vec<(String, String)>,
}

/// One run of a command.
pub(in crate::hollow) struct Run<'a> {
    pub(in crate::hollow) environment: &'a dyn Fn(&str) -> Option<String>,
    pub(in crate::hollow) disk: Disk<'a>,
}

impl Run<'_> {
    /// What a command with its arguments comes to.
    pub(in crate::hollow) fn command(&self, line: &[&str]) -> Ended {
        let mut state = State {
            run: self,
            variables: HashMap::new(),
            steps: 0,
            depth: 0,
            slept_ms: 0,
            printed: String::new(),
            written: Vec::new(),
            own: Vec::new(),
        };
        let line: Vec<String> = line.iter().map(|word| (*word).to_owned()).collect();
        let end = match state.simple(&line) {
            Ok(code) | Err(Stop::Exit(code)) => End::Code(code),
            Err(Stop::Forever) => End::Forever,
            Err(Stop::Unknown | Stop::Break) => End::Unknown,
        };
        Ended {
            end,
            slept_ms: state.slept_ms,
            printed: state.printed,
            written: state.written,
        }
    }
}

enum Stop {
    Exit(i64),
    Forever,
    Unknown,
    Break,
}

struct State<'a> {
    run: &'a Run<'a>,
    variables: HashMap<String, String>,
    steps: usize,
    depth: usize,
    slept_ms: i64,
    printed: String,
    written: Vec<(String, String)>,
    /// Files that this run made.
    own: Vec<String>,
}

type Code = Result<i64, Stop>;

impl State<'_> {
    fn block(&mut self, block: &Block) -> Code {
        let mut code = 0;
        for node in block {
            code = self.node(node)?;
        }
        Ok(code)
    }

    fn node(&mut self, node: &Node) -> Code {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            // A loop that long is meant to run on.
            return Err(Stop::Forever);
        }
        match node {
            Node::Simple { words, to } => {
                let mut line = Vec::new();
                for word in words {
                    self.split(word, &mut line)?;
                }
                let before = self.printed.len();
                let code = self.simple(&line)?;
                for file in to {
                    let path = self.text(file)?;
                    let text = self.printed[before..].to_owned();
                    self.file(path, text);
                }
                if !to.is_empty() {
                    self.printed.truncate(before);
                }
                Ok(code)
            }
            Node::Pipe(nodes) => {
                let mut code = 0;
                for node in nodes {
                    let before = self.printed.len();
                    code = self.node(node)?;
                    if nodes.last() != Some(node) {
                        self.printed.truncate(before);
                    }
                }
                Ok(code)
            }
            Node::Not(node) => Ok(i64::from(self.node(node)? == 0)),
            Node::And(one, other) => match self.node(one)? {
                0 => self.node(other),
                code => Ok(code),
            },
            Node::Or(one, other) => match self.node(one)? {
                0 => Ok(0),
                _ => self.node(other),
            },
            Node::Background(_) => Ok(0),
            Node::Group(block) => self.block(block),
            Node::If(branches, otherwise) => {
                for (condition, then) in branches {
                    if self.block(condition)? == 0 {
                        return self.block(then);
                    }
                }
                self.block(otherwise)
            }
            Node::Loop(is_while, condition, body) => {
                while (self.block(condition)? == 0) == *is_while {
                    match self.block(body) {
                        Err(Stop::Break) => break,
                        ended => drop(ended?),
                    }
                    self.steps += 1;
                    if self.steps > STEPS_MAX {
                        return Err(Stop::Forever);
                    }
                }
                Ok(0)
            }
            Node::For(name, words, body) => {
                let mut values = Vec::new();
                for word in words {
                    self.split(word, &mut values)?;
                }
                let mut code = 0;
                for value in values {
                    self.variables.insert(name.clone(), value);
                    match self.block(body) {
                        Err(Stop::Break) => break,
                        ended => code = ended?,
                    }
                }
                Ok(code)
            }
        }
    }

    /// What a word stands for; what a substitution gives that stands alone is several words.
    fn split(&mut self, word: &Word, line: &mut Vec<String>) -> Result<(), Stop> {
        let text = self.text(word)?;
        match word.as_slice() {
            [Part::Variable(_) | Part::Output(_)] => line.extend(text.split_whitespace().map(str::to_owned)),
            _ => line.push(text),
        }
        Ok(())
    }

    fn text(&mut self, word: &Word) -> Result<String, Stop> {
        let mut text = String::new();
        for part in word {
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::Variable(name) => text.push_str(&self.variable(name)),
                Part::Arithmetic(expression) => {
                    let value = self.arithmetic(expression).ok_or(Stop::Unknown)?;
                    text.push_str(&value.to_string());
                }
                Part::Output(script) => {
                    let before = self.printed.len();
                    self.script(script)?;
                    let printed = self.printed.split_off(before);
                    text.push_str(printed.trim_end());
                }
            }
            if text.len() > SCRIPT_MAX {
                return Err(Stop::Unknown);
            }
        }
        Ok(text)
    }

    fn variable(&self, name: &str) -> String {
        let (name, otherwise) = name.split_once(":-").unwrap_or((name, ""));
        let known = self
            .variables
            .get(name)
            .cloned()
            .or_else(|| (self.run.environment)(name));
        known.unwrap_or_else(|| match name {
            // Some number of two bytes less one bit, the same whenever this run is looked at.
            "RANDOM" => (crc32fast::hash(self.run.disk.run.as_bytes()) & 0x7fff).to_string(),
            _ => otherwise.to_owned(),
        })
    }

    fn arithmetic(&self, expression: &str) -> Option<i64> {
        let mut text = String::new();
        let mut name = String::new();
        for letter in expression.chars().chain([' ']) {
            if letter.is_alphabetic() || letter == '_' || letter.is_ascii_digit() && !name.is_empty() {
                name.push(letter);
                continue;
            }
            if !name.is_empty() {
                let value = self.variable(&std::mem::take(&mut name));
                text.push_str(if value.is_empty() { "0" } else { &value });
            }
            if !matches!(letter, '$' | '{' | '}') {
                text.push(letter);
            }
        }
        arithmetic::value(&text)
    }

    fn script(&mut self, text: &str) -> Code {
        if text.len() > SCRIPT_MAX || self.depth >= DEPTH_MAX {
            return Err(Stop::Unknown);
        }
        let block = parse::script(text).ok_or(Stop::Unknown)?;
        self.depth += 1;
        let code = self.block(&block);
        self.depth -= 1;
        code
    }

    fn print(&mut self, text: &str) {
        if self.printed.len() + text.len() < PRINTED_MAX {
            self.printed.push_str(text);
        }
    }

    fn file(&mut self, path: String, text: String) {
        self.run.disk.make(&path);
        self.own.push(path.clone());
        if self.written.len() < 16 {
            self.written.push((path, text));
        }
    }

    fn has(&self, path: &str) -> bool {
        self.own.iter().any(|own| own == path) || self.run.disk.has(path)
    }

    fn simple(&mut self, line: &[String]) -> Code {
        let Some((command, arguments)) = line.split_first() else {
            return Ok(0);
        };
        if let Some((name, value)) = command.split_once('=')
            && !name.is_empty()
            && name
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        {
            self.variables.insert(name.to_owned(), value.to_owned());
            return self.simple(arguments);
        }
        let name = command.rsplit('/').next().unwrap_or(command);
        let first = arguments.first().map_or("", String::as_str);
        match name {
            "sh" | "bash" | "ash" | "dash" => {
                let is_script = |option: &String| option.starts_with('-') && option.ends_with('c');
                match arguments
                    .iter()
                    .position(is_script)
                    .and_then(|at| arguments.get(at + 1))
                {
                    Some(script) => match self.script(script) {
                        Err(Stop::Exit(code)) if self.depth > 0 => Ok(code),
                        code => code,
                    },
                    // With nothing to read it ends.
                    None if arguments.is_empty() => Ok(0),
                    None => Err(Stop::Unknown),
                }
            }
            "exec" | "eval" | "time" | "nohup" | "command" | "env" | "tini" | "dumb-init" if !arguments.is_empty() => {
                self.simple(arguments)
            }
            "tail"
                if arguments
                    .iter()
                    .any(|option| option.starts_with("-f") || option == "-F") =>
            {
                Err(Stop::Forever)
            }
            "true" | ":" | "set" | "trap" | "export" | "shift" | "wait" | "cd" | "mkdir" | "rm" | "cp" | "mv"
            | "chmod" | "chown" | "ls" | "date" | "hostname" | "whoami" | "id" | "sync" | "umask" | "ln" | "uname"
            | "ps" | "nslookup" | "wget" | "curl" | "nc" | "ping" | "dd" | "cat" | "sed" | "grep" | "awk" | "head"
            | "wc" | "sort" | "cut" | "tr" | "seq" | "mount" | "df" | "kill" | "pkill" | "killall" | "tail"
            | "continue" => Ok(0),
            "false" => Ok(1),
            "break" => Err(Stop::Break),
            "exit" | "return" => Err(Stop::Exit(first.parse::<i64>().map_or(0, |code| code & 255))),
            "echo" | "printf" => {
                let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
                let (option, words) = match words.split_first() {
                    Some((option @ &("-n" | "-e" | "-ne"), rest)) => (*option, rest),
                    _ => ("", &*words),
                };
                self.print(&words.join(" "));
                if name == "echo" && !option.contains('n') {
                    self.print("\n");
                }
                Ok(0)
            }
            "sleep" => {
                let mut slept_ms = 0_i64;
                for time in arguments {
                    slept_ms = slept_ms.saturating_add(sleep_ms(time).ok_or(Stop::Forever)?);
                }
                self.slept_ms = self.slept_ms.saturating_add(slept_ms);
                Ok(0)
            }
            "touch" => {
                for path in arguments.iter().filter(|path| !path.starts_with('-')) {
                    self.file(path.clone(), String::new());
                }
                Ok(0)
            }
            "expr" => {
                let value = self.arithmetic(&arguments.join(" ")).ok_or(Stop::Unknown)?;
                self.print(&format!("{value}\n"));
                Ok(i64::from(value == 0))
            }
            "[" | "[[" | "test" => {
                let words: Vec<&str> = arguments
                    .iter()
                    .map(String::as_str)
                    .filter(|word| !matches!(*word, "]" | "]]"))
                    .collect();
                self.test(&words).map(|holds| i64::from(!holds)).ok_or(Stop::Unknown)
            }
            _ => Err(Stop::Unknown),
        }
    }

    fn test(&self, words: &[&str]) -> Option<bool> {
        if let Some(at) = words.iter().position(|word| matches!(*word, "-o" | "||")) {
            return Some(self.test(&words[..at])? || self.test(&words[at + 1..])?);
        }
        if let Some(at) = words.iter().position(|word| matches!(*word, "-a" | "&&")) {
            return Some(self.test(&words[..at])? && self.test(&words[at + 1..])?);
        }
        match words {
            [] | ["-n"] => Some(false),
            ["!", rest @ ..] => self.test(rest).map(|holds| !holds),
            ["-r" | "-f" | "-e" | "-d" | "-s" | "-w" | "-x", path] => Some(self.has(path)),
            ["-z", text] => Some(text.is_empty()),
            ["-z"] => Some(true),
            ["-n", text] | [text] => Some(!text.is_empty()),
            [one, "=" | "==", other] => Some(one == other),
            [one, "!=", other] => Some(one != other),
            [one, sign, other] => {
                let (one, other): (i64, i64) = (one.parse().unwrap_or(0), other.parse().unwrap_or(0));
                match *sign {
                    "-eq" => Some(one == other),
                    "-ne" => Some(one != other),
                    "-lt" => Some(one < other),
                    "-le" => Some(one <= other),
                    "-gt" => Some(one > other),
                    "-ge" => Some(one >= other),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

/// Milliseconds of `5`, `0.5`, `2m`; `None` for `infinity` and what is no time.
fn sleep_ms(text: &str) -> Option<i64> {
    let (number, unit_s) = match text.strip_suffix(['s', 'm', 'h', 'd']) {
        None => (text, 1.0),
        Some(number) => (
            number,
            match text.chars().last() {
                Some('m') => 60.0,
                Some('h') => 3600.0,
                Some('d') => 86_400.0,
                _ => 1.0,
            },
        ),
    };
    let seconds: f64 = number.parse().ok()?;
    (seconds.is_finite() && seconds >= 0.0).then(|| (seconds * unit_s * 1000.0).min(1e15) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(line: &[&str]) -> (End, i64) {
        let run = Run {
            environment: &|name| (name == "JOB_COMPLETION_INDEX").then(|| "3".to_owned()),
            disk: Disk {
                of: &|path| format!("test:{path}"),
                run: "run".into(),
            },
        };
        let ended = run.command(line);
        (ended.end, ended.slept_ms)
    }

    fn script(text: &str) -> (End, i64) {
        ended(&["/bin/sh", "-c", text])
    }

    #[test]
    fn commands_end_as_they_would() {
        use End::{Code, Forever, Unknown};
        assert_eq!(ended(&["true"]), (Code(0), 0));
        assert_eq!(ended(&["/bin/false"]), (Code(1), 0));
        assert_eq!(ended(&["sleep", "5"]), (Code(0), 5000));
        assert_eq!(ended(&["sleep", "1m", "0.5"]), (Code(0), 60_500));
        assert_eq!(ended(&["sleep", "infinity"]), (Forever, 0));
        assert_eq!(ended(&["nginx"]), (Unknown, 0));
        assert_eq!(script("exit 7"), (Code(7), 0));
        assert_eq!(script("echo a; sleep 2 && exit 3 || exit 4"), (Code(3), 2000));
        assert_eq!(script("false || exit 4"), (Code(4), 0));
        assert_eq!(script("exit $(( $RANDOM / 32768 ))"), (Code(0), 0));
        assert_eq!(script("while true; do sleep 1; done").0, Forever);
        assert_eq!(script("for i in 1 2 3; do echo $i; sleep 1; done"), (Code(0), 3000));
        assert_eq!(
            script("if [ $(expr ${JOB_COMPLETION_INDEX} % 2) -ne 0 ]; then\n exit 1\nelse\n exit 0\nfi\n"),
            (Code(1), 0)
        );
        assert_eq!(
            script("if [[ -r /x ]]\nthen\nexit 0\nelif [[ $JOB_COMPLETION_INDEX -eq 3 ]]\nthen\nexit 9\nfi"),
            (Code(9), 0)
        );
        assert_eq!(script("exec sleep 3 > /dev/null 2>&1"), (Code(0), 3000));
        assert_eq!(script("case x in x) ;; esac").0, Unknown);
        assert_eq!(script("X=5; test \"$X\" = 5 && exit 6"), (Code(6), 0));
        assert_eq!(script("sleep 1 & exit 2"), (Code(2), 0));
    }

    #[test]
    fn a_run_does_not_see_the_files_that_it_made_when_it_is_looked_at_again_but_the_next_run_does() {
        let run = |name: &str| {
            let run = Run {
                environment: &|_| None,
                disk: Disk {
                    of: &|path| format!("once:{path}"),
                    run: name.into(),
                },
            };
            run.command(&[
                "sh",
                "-c",
                "if [[ -r /data/foo ]]; then exit 0; else touch /data/foo; exit 1; fi",
            ])
            .end
        };
        assert_eq!((run("1"), run("1")), (End::Code(1), End::Code(1)));
        assert_eq!((run("2"), run("2")), (End::Code(0), End::Code(0)));
    }

    #[test]
    fn what_goes_into_a_file_is_told() {
        let run = Run {
            environment: &|_| None,
            disk: Disk {
                of: &str::to_owned,
                run: "w".into(),
            },
        };
        let ended = run.command(&["sh", "-c", "echo hello; echo -n DONE > /dev/termination-log; printf x"]);
        assert_eq!(ended.printed, "hello\nx");
        assert_eq!(ended.written, [("/dev/termination-log".to_owned(), "DONE".to_owned())]);
    }

    #[test]
    fn scripts_that_ask_for_too_much_are_given_up() {
        assert_eq!(script(&"(".repeat(5000)).0, End::Unknown);
        assert_eq!(script(&"if true; then ".repeat(200)).0, End::Unknown);
        assert_eq!(script(&format!("{}1", "$(".repeat(300))).0, End::Unknown);
        let nested = (0..40).fold("exit 1".to_owned(), |inner, _| {
            format!("sh -c '{}'", inner.replace('\'', ""))
        });
        script(&nested);
        script("a=x; while true; do a=$a$a$a$a; done");
    }
}
