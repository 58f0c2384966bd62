//! `/version`.

use http::StatusCode;

use super::body::Response;
use super::router::json;

/// What clients are told that they talk to: the Kubernetes level, not flatkube's own version, which `gitCommit`
/// carries.
pub(super) fn answer() -> Response {
    json(
        StatusCode::OK,
        concat!(
            "{\n  \"major\": \"1\",\n  \"minor\": \"36\",\n  \"emulationMajor\": \"1\",\n  \"emulationMinor\": \"36\",\n",
            "  \"minCompatibilityMajor\": \"1\",\n  \"minCompatibilityMinor\": \"35\",\n",
            "  \"gitVersion\": \"v1.36.2\",\n  \"gitCommit\": \"flatkube-",
            env!("CARGO_PKG_VERSION"),
            "\",\n  \"gitTreeState\": \"clean\",\n  \"buildDate\": \"2026-01-01T00:00:00Z\",\n",
            "  \"goVersion\": \"none\",\n  \"compiler\": \"rustc\",\n  \"platform\": \"linux/amd64\"\n}",
        ),
    )
}
