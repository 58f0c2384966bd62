//! Each verb on each resource, and each path.

use serde_json::Value;

use crate::Started;

/// What everybody who is known may ask about himself.
const OWN: [&str; 3] = [
    "selfsubjectaccessreviews",
    "selfsubjectrulesreviews",
    "selfsubjectreviews",
];

#[tokio::test]
async fn no_verb_on_any_resource_is_for_a_user_without_rights() {
    let started = Started::new().await;
    let (admin, mallory) = (started.admin(), started.mallory());
    let mut versions = vec![(String::new(), "/api/v1".to_owned())];
    for group in admin.get("/apis").await.body["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            let version = version["groupVersion"].as_str().unwrap();
            versions.push((group["name"].as_str().unwrap().to_owned(), format!("/apis/{version}")));
        }
    }
    let mut count = 0;
    for (group, root) in versions {
        for resource in admin.get(&root).await.body["resources"].as_array().unwrap() {
            let full = resource["name"].as_str().unwrap();
            let (plural, sub) = full.split_once('/').unwrap_or((full, ""));
            if OWN.contains(&plural) {
                continue;
            }
            for verb in resource["verbs"].as_array().unwrap() {
                let verb = verb.as_str().unwrap();
                let is_named = !sub.is_empty() || matches!(verb, "get" | "update" | "patch" | "delete");
                let is_namespaced = resource["namespaced"] == true;
                let mut path = root.clone();
                if is_namespaced {
                    path.push_str("/namespaces/default");
                }
                path = format!("{path}/{plural}");
                if is_named {
                    path.push_str("/x");
                }
                if !sub.is_empty() {
                    path = format!("{path}/{sub}");
                }
                let method = match verb {
                    "create" => "POST",
                    "update" => "PUT",
                    "patch" => "PATCH",
                    "delete" | "deletecollection" => "DELETE",
                    _ => "GET",
                };
                if verb == "watch" {
                    path.push_str("?watch=true");
                }
                let kind = if verb == "patch" {
                    "application/merge-patch+json"
                } else {
                    "application/json"
                };
                let answer = mallory.send(method, &path, kind, "{}".into()).await;
                assert_eq!(answer.code, 403, "{method} {path}: {}", answer.body);
                let scope = if is_namespaced {
                    "in the namespace \"default\"".to_owned()
                } else if plural == "namespaces" && is_named {
                    "in the namespace \"x\"".to_owned()
                } else {
                    "at the cluster scope".to_owned()
                };
                let expected =
                    format!("User \"mallory\" cannot {verb} resource \"{full}\" in API group \"{group}\" {scope}");
                let message = answer.body["message"].as_str().unwrap();
                assert!(message.ends_with(&expected), "{method} {path}: {message}");
                count += 1;
            }
        }
    }
    assert!(count > 400, "{count}");
}

#[tokio::test]
async fn no_way_of_writing_a_path_gets_past_authorization() {
    let started = Started::new().await;
    let mallory = started.mallory();
    for path in [
        "/metrics",
        "/metrics/",
        "//metrics",
        "/%6detrics",
        "/readyz/ping",
        "/flatkube/v1/backup",
        "/flatkube/v1/%62ackup",
        "/api/v1/secrets",
        "/api/v1/secrets/",
        "//api/v1/secrets",
        "/api/v1/%73ecrets",
        "/api/v1/secrets?watch=1",
        "/api/v1/watch/secrets",
        "/api/v1/watch/namespaces/default/secrets/x",
        "/api/v1/namespaces/default/secrets?fieldSelector=metadata.name%3Dx",
        "/api/v1/namespaces/default%2Fsecrets",
        "/api/v1/namespaces/default/pods/p/exec?command=sh",
        "/api/v1/namespaces/default/services/s/proxy/x",
        "/api/v1/nodes/n/proxy/metrics",
        "/apis/nobody.example.com/v1/things",
    ] {
        for method in ["GET", "POST", "DELETE"] {
            let answer = mallory.send(method, path, "application/json", "{}".into()).await;
            assert_eq!(answer.code, 403, "{method} {path}: {}", answer.body);
        }
    }
    let open = mallory.get("/api/v1").await;
    assert_eq!(open.code, 200, "what there is may be known");
    assert_ne!(open.body, Value::Null);
}
