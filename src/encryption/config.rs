//! The file that says what is encrypted by what: `EncryptionConfiguration` of `apiserver.config.k8s.io/v1`, as
//! kube-apiserver reads it.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use zeroize::{Zeroize, Zeroizing};

use crate::scalars::go_duration;
use crate::schema::yaml_options;

/// Largest file, bytes.
pub(super) const FILE_LEN_MAX: u64 = 1 << 20;
/// Most characters of the name of a key or a provider.
const NAME_LEN_MAX: usize = 253;
/// How long a KMS plugin has for an answer unless the file says otherwise.
const TIMEOUT: Duration = Duration::from_secs(3);

/// A file that cannot be used, and why; nothing of a key is in it.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct ConfigError {
    /// The file.
    pub path: PathBuf,
    /// Where in it, and what is wrong.
    pub reason: String,
}

/// What is encrypted by what, checked.
#[derive(Clone)]
pub(super) struct Config {
    pub(super) rules: Vec<Rule>,
}

/// The first rule that names a resource is its rule.
#[derive(Clone)]
pub(super) struct Rule {
    pub(super) resources: Vec<Pattern>,
    /// The first one writes, all read.
    pub(super) providers: Vec<ProviderConfig>,
}

/// Which resources are meant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pattern {
    /// `*.*`
    All,
    /// `*.apps`; `*.` is the group without a name.
    Group(String),
    /// `secrets`, `deployments.apps`: the name of the storage resource.
    One(String),
}

#[derive(Clone)]
pub(super) enum ProviderConfig {
    Identity,
    AesGcm(Vec<Key>),
    Secretbox(Vec<Key>),
    Kms(KmsConfig),
}

/// A key of the file.
#[derive(Clone)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) secret: Zeroizing<Vec<u8>>,
}

/// A plugin that holds keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KmsConfig {
    pub(super) name: String,
    /// Its socket.
    pub(super) socket: PathBuf,
    pub(super) timeout: Duration,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
    #[serde(default)]
    resources: Vec<FileRule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FileRule {
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    providers: Vec<FileProvider>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
struct FileProvider {
    identity: Option<Nothing>,
    aesgcm: Option<FileKeys>,
    aescbc: Option<FileKeys>,
    secretbox: Option<FileKeys>,
    kms: Option<FileKms>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileKeys {
    #[serde(default)]
    keys: Vec<FileKey>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileKey {
    #[serde(default)]
    name: String,
    #[serde(default)]
    secret: String,
}

impl Drop for FileKey {
    fn drop(&mut self) {
        self.secret.zeroize();
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FileKms {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    endpoint: String,
    timeout: Option<String>,
    cachesize: Option<i64>,
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`ConfigError`] with the first thing that is wrong and its place.
    pub(super) fn read(path: &Path) -> Result<(Config, Zeroizing<String>), ConfigError> {
        let refused = |reason: String| ConfigError {
            path: path.to_owned(),
            reason,
        };
        let read = || -> std::io::Result<String> {
            use std::io::Read as _;
            let mut text = String::new();
            std::fs::File::open(path)?
                .take(FILE_LEN_MAX + 1)
                .read_to_string(&mut text)?;
            Ok(text)
        };
        let text = Zeroizing::new(read().map_err(|error| refused(format!("cannot be read: {error}")))?);
        if text.len() as u64 > FILE_LEN_MAX {
            return Err(refused(format!("is larger than {FILE_LEN_MAX} bytes")));
        }
        Ok((Config::parse(&text).map_err(refused)?, text))
    }

    /// From the text of a file.
    pub(super) fn parse(text: &str) -> Result<Config, String> {
        let options = yaml_options(text.len(), serde_saphyr::DuplicateKeyPolicy::Error);
        // The parser's texts tell names and places, and a value only where another type was expected.
        let file: File = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| format!("is no EncryptionConfiguration: {}", place_of(&error.to_string())))?;
        if file.kind != "EncryptionConfiguration" || file.api_version != "apiserver.config.k8s.io/v1" {
            return Err("must have kind EncryptionConfiguration and apiVersion apiserver.config.k8s.io/v1".to_owned());
        }
        if file.resources.is_empty() {
            return Err("resources: at least one list of resources and providers is needed".to_owned());
        }
        let mut names = HashSet::new();
        let rules = file.resources.iter().enumerate();
        let rules = rules.map(|(index, rule)| Rule::of(rule, &format!("resources[{index}]"), &mut names));
        Ok(Config {
            rules: rules.collect::<Result<_, _>>()?,
        })
    }

    /// The number of a storage resource's rule.
    pub(super) fn rule(&self, resource: &str) -> Option<usize> {
        self.rules
            .iter()
            .position(|rule| rule.resources.iter().any(|pattern| pattern.matches(resource)))
    }
}

/// What a parser says, up to the first quotation: a text in the file may be a key.
fn place_of(error: &str) -> String {
    let end = error.find(['"', '`', '\'']).unwrap_or(error.len());
    let field = error.contains("unknown field").then_some(error);
    field.unwrap_or(&error[..end]).trim_end().to_owned()
}

impl Rule {
    /// `kms` are the names of the plugins that were named before.
    fn of(rule: &FileRule, at: &str, kms: &mut HashSet<String>) -> Result<Rule, String> {
        if rule.resources.is_empty() {
            return Err(format!("{at}.resources: at least one resource is needed"));
        }
        if rule.providers.is_empty() {
            return Err(format!("{at}.providers: at least one provider is needed"));
        }
        let mut resources: Vec<Pattern> = Vec::new();
        for (index, text) in rule.resources.iter().enumerate() {
            let at = format!("{at}.resources[{index}]");
            let pattern = Pattern::of(text).map_err(|reason| format!("{at}: {reason}"))?;
            if let Some(other) = resources.iter().position(|other| other.overlaps(&pattern)) {
                return Err(format!(
                    "{at}: {text} and {} mean the same resources, name one of them",
                    rule.resources[other]
                ));
            }
            resources.push(pattern);
        }
        let mut providers = Vec::new();
        for (index, provider) in rule.providers.iter().enumerate() {
            let at = format!("{at}.providers[{index}]");
            let provider = ProviderConfig::of(provider, &at)?;
            if let ProviderConfig::Kms(plugin) = &provider
                && !kms.insert(plugin.name.clone())
            {
                return Err(format!(
                    "{at}.kms.name: {} is named twice; plugins have names of their own",
                    plugin.name
                ));
            }
            providers.push(provider);
        }
        Ok(Rule { resources, providers })
    }
}

impl Pattern {
    fn of(text: &str) -> Result<Pattern, String> {
        if text == "*.*" {
            return Ok(Pattern::All);
        }
        if let Some(group) = text.strip_prefix("*.") {
            if group.contains('*') {
                return Err(format!("{text} is no pattern; *.GROUP, *. and *.* are"));
            }
            return Ok(Pattern::Group(group.to_owned()));
        }
        if text.is_empty() || text.contains(['*', '/']) {
            return Err(format!(
                "{text:?} names no resource; secrets, deployments.apps, *.apps, *. and *.* do"
            ));
        }
        if text.chars().any(char::is_uppercase) {
            return Err(format!("{text} has capitals, names of resources have none"));
        }
        // `secrets.` and `secrets` are the same.
        Ok(Pattern::One(text.strip_suffix('.').unwrap_or(text).to_owned()))
    }

    /// Whether a storage resource is meant.
    pub(super) fn matches(&self, resource: &str) -> bool {
        match self {
            Pattern::All => true,
            Pattern::Group(group) => resource.split_once('.').map_or("", |(_, group)| group) == group,
            Pattern::One(one) => one == resource,
        }
    }

    /// Whether two patterns of one list make each other needless.
    fn overlaps(&self, other: &Pattern) -> bool {
        match (self, other) {
            (Pattern::All, _) | (_, Pattern::All) => true,
            (Pattern::One(one), group @ Pattern::Group(_)) | (group @ Pattern::Group(_), Pattern::One(one)) => {
                group.matches(one)
            }
            _ => self == other,
        }
    }
}

impl ProviderConfig {
    fn of(provider: &FileProvider, at: &str) -> Result<ProviderConfig, String> {
        let FileProvider {
            identity,
            aesgcm,
            aescbc,
            secretbox,
            kms,
        } = provider;
        if aescbc.is_some() {
            return Err(format!(
                "{at}: aescbc is not offered: CBC does not notice changed bytes; use secretbox, aesgcm or kms (apiVersion v2)"
            ));
        }
        match (identity, aesgcm, secretbox, kms) {
            (Some(Nothing {}), None, None, None) => Ok(ProviderConfig::Identity),
            (None, Some(given), None, None) => keys(given, &[16, 24, 32], &format!("{at}.aesgcm")).map(Self::AesGcm),
            (None, None, Some(given), None) => keys(given, &[32], &format!("{at}.secretbox")).map(Self::Secretbox),
            (None, None, None, Some(plugin)) => KmsConfig::of(plugin, &format!("{at}.kms")).map(Self::Kms),
            _ => Err(format!(
                "{at}: exactly one of identity, aesgcm, secretbox and kms is needed"
            )),
        }
    }
}

fn keys(given: &FileKeys, lengths: &[usize], at: &str) -> Result<Vec<Key>, String> {
    if given.keys.is_empty() {
        return Err(format!("{at}.keys: at least one key is needed"));
    }
    let mut keys: Vec<Key> = Vec::new();
    for (index, FileKey { name, secret }) in given.keys.iter().enumerate() {
        let at = format!("{at}.keys[{index}]");
        check_name(name).map_err(|reason| format!("{at}.name: {reason}"))?;
        if keys.iter().any(|key| key.name == *name) {
            return Err(format!("{at}.name: {name} is there twice"));
        }
        if secret.is_empty() {
            return Err(format!("{at}.secret: a key is needed, encoded as base64"));
        }
        let secret = STANDARD.decode(secret).map(Zeroizing::new);
        let secret = secret.map_err(|_| format!("{at}.secret: is not base64"))?;
        if !lengths.contains(&secret.len()) {
            return Err(format!(
                "{at}.secret: has {} bytes, this provider's keys have {}",
                secret.len(),
                lengths.iter().map(usize::to_string).collect::<Vec<_>>().join(" or ")
            ));
        }
        keys.push(Key {
            name: name.clone(),
            secret,
        });
    }
    Ok(keys)
}

/// Names stand in what is stored, between colons.
fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > NAME_LEN_MAX {
        return Err(format!("1 to {NAME_LEN_MAX} characters are needed"));
    }
    if name
        .chars()
        .all(|c| c.is_ascii_graphic() && !matches!(c, ':' | '"' | '\\'))
    {
        return Ok(());
    }
    Err(format!(
        r#"{name:?}: printable ASCII is needed, without spaces, : " and \"#
    ))
}

impl KmsConfig {
    fn of(plugin: &FileKms, at: &str) -> Result<KmsConfig, String> {
        check_name(&plugin.name).map_err(|reason| format!("{at}.name: {reason}"))?;
        if plugin.api_version != "v2" {
            return Err(format!(
                "{at}.apiVersion: v2 is needed, KMS v1 is not offered (kube-apiserver has given it up, too)"
            ));
        }
        if plugin.cachesize.is_some() {
            return Err(format!("{at}.cachesize: is of KMS v1, v2 has no such cache"));
        }
        let socket = plugin.endpoint.strip_prefix("unix://").filter(|path| !path.is_empty());
        let socket = socket.ok_or_else(|| format!("{at}.endpoint: unix:///PATH is needed"))?;
        let timeout = match &plugin.timeout {
            None => TIMEOUT,
            Some(text) => go_duration::nanoseconds(text)
                .ok()
                .and_then(|nanoseconds| Duration::try_from_secs_f64(nanoseconds / 1e9).ok())
                .filter(|timeout| !timeout.is_zero())
                .ok_or_else(|| format!("{at}.timeout: a duration above zero is needed, such as 3s"))?,
        };
        Ok(KmsConfig {
            name: plugin.name.clone(),
            socket: socket.into(),
            timeout,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(rules: &str) -> String {
        format!("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n{rules}")
    }

    fn rule(resources: &str, providers: &str) -> String {
        file(&format!("- resources: [{resources}]\n  providers:\n  - {providers}\n"))
    }

    fn refusal(text: &str) -> String {
        Config::parse(text).err().expect("it is refused")
    }

    const BOX: &str = "secretbox: {keys: [{name: k, secret: MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=}]}";

    #[test]
    fn the_first_rule_that_names_a_resource_is_its_rule() {
        let config = Config::parse(&file(
            "- resources: [secrets, widgets.example.com]\n  providers:\n  - identity: {}\n\
             - resources: ['*.apps', '*.']\n  providers:\n  - identity: {}\n  - identity: {}\n\
             - resources: ['*.*']\n  providers:\n  - identity: {}\n  - identity: {}\n  - identity: {}\n",
        ))
        .unwrap_or_else(|error| panic!("{error}"));
        let of = |resource| config.rules[config.rule(resource).unwrap()].providers.len();
        assert_eq!([of("secrets"), of("widgets.example.com")], [1, 1]);
        assert_eq!([of("configmaps"), of("deployments.apps")], [2, 2]);
        assert_eq!([of("gadgets.example.com"), of("leases.coordination.k8s.io")], [3, 3]);
        let some = Config::parse(&rule("secrets.", "identity: {}")).unwrap_or_else(|error| panic!("{error}"));
        assert!(some.rule("secrets").is_some() && some.rule("configmaps").is_none());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        for (text, expected) in [
            (
                rule("secrets", "aescbc: {keys: []}"),
                "resources[0].providers[0]: aescbc is not offered",
            ),
            (rule("secrets", "identity: {}\n    kms: {}"), "exactly one of"),
            (rule("secrets", "aesgcm: {}"), "aesgcm.keys: at least one"),
            (
                rule("secrets", "aesgcm: {keys: [{name: a, secret: AAAA}]}"),
                "has 3 bytes, this provider's keys have 16 or 24 or 32",
            ),
            (
                rule("secrets", "secretbox: {keys: [{name: a, secret: '~'}]}"),
                "keys[0].secret: is not base64",
            ),
            (
                rule("secrets", "aesgcm: {keys: [{name: 'a:b', secret: AAAA}]}"),
                "keys[0].name",
            ),
            (rule("", BOX), "resources[0].resources: at least one"),
            (
                rule("secrets, secrets", BOX),
                "resources[1]: secrets and secrets mean the same",
            ),
            (rule("secrets, '*.'", BOX), "mean the same"),
            (rule("'*.*', '*.apps'", BOX), "mean the same"),
            (rule("'*'", BOX), "names no resource"),
            (rule("Secrets", BOX), "capitals"),
            (
                rule("secrets", "kms: {name: a, endpoint: 'unix:///s'}"),
                "KMS v1 is not offered",
            ),
            (
                rule("secrets", "kms: {apiVersion: v2, name: a, endpoint: 'http://s'}"),
                "unix:///PATH",
            ),
            (
                rule(
                    "secrets",
                    "kms: {apiVersion: v2, name: a, endpoint: 'unix:///s', timeout: 0s}",
                ),
                "above zero",
            ),
            (
                rule(
                    "secrets",
                    "kms: {apiVersion: v2, name: a, endpoint: 'unix:///s'}\n  - kms: {apiVersion: v2, name: a, endpoint: 'unix:///s'}",
                ),
                "named twice",
            ),
            (
                file("").replace("resources:", "resources: []"),
                "resources: at least one",
            ),
            (rule("secrets", BOX).replace("v1", "v2"), "must have kind"),
            (rule("secrets", "gcm: {}"), "unknown field"),
            ("{".to_owned(), "is no EncryptionConfiguration"),
        ] {
            let found = refusal(&text);
            assert!(found.contains(expected), "{found:?} lacks {expected:?}");
        }
    }

    #[test]
    fn a_refusal_tells_no_secret() {
        for secret in ["[topsecret]", "{topsecret: 1}", "topsecret!"] {
            let text = rule(
                "secrets",
                &format!("secretbox: {{keys: [{{name: a, secret: {secret}}}]}}"),
            );
            assert!(!refusal(&text).contains("topsecret"), "{}", refusal(&text));
        }
        let moved = rule("secrets", "secretbox: topsecret");
        assert!(!refusal(&moved).contains("topsecret"), "{}", refusal(&moved));
    }
}
