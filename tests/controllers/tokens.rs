//! Secrets that hold tokens of service accounts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::{Answer, Client, Cluster};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const WHOAMI: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";

fn holder(name: &str) -> Value {
    json!({"metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": "robot"}},
        "type": "kubernetes.io/service-account-token"})
}

fn part(secret: &Value, name: &str) -> String {
    let bytes = STANDARD.decode(secret["data"][name].as_str().unwrap()).unwrap();
    String::from_utf8(bytes).unwrap()
}

fn is_filled(answer: &Answer) -> bool {
    answer.body["data"]["token"].is_string()
}

async fn who(cluster: &Cluster, token: &str) -> Answer {
    let token: &'static str = token.to_owned().leak();
    let client = Client::new(cluster.server.http_address().unwrap(), Some(token));
    client.post(WHOAMI, &json!({})).await
}

#[tokio::test]
async fn a_secret_of_this_type_gets_a_token_that_is_good_while_both_are_there() {
    let cluster = Cluster::start().await;
    let account = cluster.made(ACCOUNTS, &json!({"metadata": {"name": "robot"}})).await;
    cluster.made(SECRETS, &holder("held")).await;
    let path = format!("{SECRETS}/held");
    let secret = cluster.until(&path, is_filled).await.body;
    assert_eq!(part(&secret, "namespace"), "default");
    assert_eq!(part(&secret, "ca.crt"), cluster.server.authority());
    assert_eq!(
        secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"],
        account["metadata"]["uid"]
    );
    let token = part(&secret, "token");
    let answer = who(&cluster, &token).await;
    assert_eq!(
        answer.body["status"]["userInfo"]["username"], "system:serviceaccount:default:robot",
        "{}",
        answer.body
    );
    // Its use is noted by the day.
    let noted = |answer: &Answer| answer.body["metadata"]["labels"][LAST_USED].is_string();
    let secret = cluster.until(&path, noted).await.body;
    let day = secret["metadata"]["labels"][LAST_USED].as_str().unwrap();
    assert!(day.len() == 10 && day.starts_with("20"), "{day}");
    // One that was marked is refused, and good again when the mark is taken off.
    let mark = |value: Value| json!({"metadata": {"labels": {"kubernetes.io/legacy-token-invalid-since": value}}});
    cluster.admin.merge(&path, &mark(json!("2026-01-01"))).await;
    assert_eq!(who(&cluster, &token).await.code, 401);
    cluster.admin.merge(&path, &mark(Value::Null)).await;
    assert_eq!(who(&cluster, &token).await.code, 201);
    cluster.admin.delete(&path).await;
    assert_eq!(who(&cluster, &token).await.code, 401);
}

#[tokio::test]
async fn a_secret_goes_with_its_account_and_its_name_with_the_secret() {
    let cluster = Cluster::start().await;
    let account = json!({"metadata": {"name": "robot"}, "secrets": [{"name": "one"}, {"name": "other"}]});
    cluster.made(ACCOUNTS, &account).await;
    for name in ["one", "two"] {
        cluster.made(SECRETS, &holder(name)).await;
        cluster.until(&format!("{SECRETS}/{name}"), is_filled).await;
    }
    cluster.admin.delete(&format!("{SECRETS}/one")).await;
    let path = format!("{ACCOUNTS}/robot");
    let forgotten = |answer: &Answer| answer.body["secrets"] == json!([{"name": "other"}]);
    cluster.until(&path, forgotten).await;
    cluster.admin.delete(&path).await;
    cluster.gone(&format!("{SECRETS}/two")).await;
    // One of an account that is not there goes, too.
    cluster.made(SECRETS, &holder("three")).await;
    cluster.gone(&format!("{SECRETS}/three")).await;
}
