//! `proxy` of Pods, Services and nodes.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpListener;

use crate::client::{Answer, Started};
use crate::kubelet::Kubelet;

/// An address of this machine that is none of loopback: where Pods of the tests are. `None`, loudly, without a network.
pub(crate) fn address() -> Option<IpAddr> {
    let socket = UdpSocket::bind(("0.0.0.0", 0)).ok()?;
    let found = socket
        .connect(("192.0.2.1", 9))
        .and_then(|()| socket.local_addr())
        .ok()
        .map(|address| address.ip());
    let found = found.filter(|address| !address.is_loopback() && !address.is_unspecified());
    if found.is_none() {
        eprintln!("\n!!! no network: THE TESTS OF proxy CHECK LITTLE\n");
    }
    found
}

/// A web server in a Pod: tells what it was asked, in what words.
async fn web(address: IpAddr) -> SocketAddr {
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let own = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let service = service_fn(|request: Request<Incoming>| async move {
                let (head, body) = request.into_parts();
                let body = body
                    .collect()
                    .await
                    .map(http_body_util::Collected::to_bytes)
                    .unwrap_or_default();
                let path = head.uri.path().to_owned();
                if path == "/go" {
                    let answer = Response::builder()
                        .status(302)
                        .header("location", "/there/")
                        .body(Full::default());
                    return Ok::<_, Infallible>(answer.unwrap());
                }
                let mut text = format!("{} {}\n", head.method, head.uri);
                for (name, value) in &head.headers {
                    writeln!(text, "{name}: {}", value.to_str().unwrap()).unwrap();
                }
                text.push_str(&String::from_utf8_lossy(&body));
                let answer = Response::builder()
                    .status(if path == "/teapot" { 418 } else { 200 })
                    .header("access-control-allow-origin", "*")
                    .header("connection", "x-hop")
                    .header("x-hop", "1")
                    .header("x-kept", "1")
                    .body(Full::new(Bytes::from(text)));
                Ok(answer.unwrap())
            });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service));
        }
    });
    own
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_is_proxied_with_every_method_path_and_body_and_no_secret_goes_there() {
    let Some(ip) = address() else { return };
    let web = web(ip).await;
    let started = Started::new(&[]);
    started.pod("p", "", &ip.to_string()).await;
    let base = format!("/api/v1/namespaces/default/pods/http:p:{}/proxy", web.port());
    for method in [
        Method::GET,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
        Method::OPTIONS,
    ] {
        let headers = [
            ("x-mine", "1"),
            ("x-remote-user", "root"),
            ("impersonate-user", "root"),
            ("impersonate-group", "system:masters"),
            ("te", "trailers"),
        ];
        let path = format!("{base}/a%20b/../c//d/?q=%26&x");
        let answer = Answer::of(started.open(method.clone(), &path, &headers, "the body".into()).await).await;
        let text = answer.text();
        assert_eq!(answer.code, 200, "{text}");
        assert!(text.starts_with(&format!("{method} /c/d/?q=%26&x\n")), "{text}");
        assert!(text.ends_with("the body"), "{text}");
        assert!(
            text.contains("x-mine: 1\n") && text.contains("host: api.example:6443\n"),
            "{text}"
        );
        assert!(text.contains("x-forwarded-for: 127.0.0.1\n"), "{text}");
        for secret in ["authorization", "x-remote-user", "impersonate-user", "te: "] {
            assert!(!text.contains(&format!("\n{secret}")), "{secret} in {text}");
        }
        assert!(answer.headers.contains_key("x-kept"));
        for gone in ["x-hop", "access-control-allow-origin"] {
            assert!(!answer.headers.contains_key(gone), "{gone}");
        }
    }
    assert_eq!(started.get(&format!("{base}/teapot")).await.code, 418);
    let head = started
        .open(Method::HEAD, &format!("{base}/x"), &[], Bytes::new())
        .await;
    assert_eq!(head.status(), 200);
    let moved = started.get(&format!("{base}?a=b")).await;
    assert_eq!(
        (moved.code, moved.headers["location"].to_str().unwrap()),
        (301, &*format!("{base}/?a=b"))
    );
    let redirect = started.get(&format!("{base}/go")).await;
    assert_eq!(
        redirect.headers["location"],
        format!("http://api.example:6443{base}/there/")
    );
    // A large body both ways.
    let large = Bytes::from(vec![b'z'; 8 << 20]);
    let answer = Answer::of(
        started
            .open(Method::POST, &format!("{base}/large"), &[], large.clone())
            .await,
    )
    .await;
    assert!(answer.body.ends_with(&large));
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_that_lead_back_to_this_machine_are_refused() {
    let kubelet = Kubelet::start().await;
    let started = Started::new(&[]);
    for (name, ip) in [
        ("a", "127.0.0.1"),
        ("b", "169.254.169.254"),
        ("c", "::1"),
        ("d", "0.0.0.0"),
    ] {
        started.pod(name, "", ip).await;
        let answer = started
            .get(&format!("/api/v1/namespaces/default/pods/{name}:80/proxy/"))
            .await;
        assert_eq!(
            (answer.code, answer.message().as_str()),
            (400, "address not allowed"),
            "{ip}"
        );
    }
    started.node("n", kubelet.address, &[]).await;
    // Its kubelet may be anywhere; other ports of it may not.
    let answer = started.get("/api/v1/nodes/n/proxy/stats/summary?only=cpu").await;
    assert_eq!((answer.code, answer.text().as_str()), (200, "summary of only=cpu"));
    let own = format!("/api/v1/nodes/https:n:{}/proxy/stats/summary", kubelet.address.port());
    assert_eq!(started.get(&own).await.code, 200);
    let answer = started.get("/api/v1/nodes/n:22/proxy/").await;
    assert_eq!((answer.code, answer.message().as_str()), (400, "address not allowed"));
    for (path, message) in [
        ("/api/v1/nodes/ftp:n:22/proxy/", "invalid node request \"ftp:n:22\""),
        (
            "/api/v1/namespaces/default/pods/a:b:c:d/proxy/",
            "invalid pod request \"a:b:c:d\"",
        ),
        (
            "/api/v1/namespaces/default/services/:80/proxy/",
            "invalid service request \":80\"",
        ),
    ] {
        let answer = started.get(path).await;
        assert_eq!((answer.code, answer.message().as_str()), (400, message));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_is_proxied_to_its_ready_pods_alone() {
    let Some(ip) = address() else { return };
    let web = web(ip).await;
    let started = Started::new(&[]);
    let ports = json!([{"name": "web", "port": 80}, {"name": "other", "port": 81}]);
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": ports, "selector": {"app": "s"}}});
    started.create("/api/v1/namespaces/default/services", &service).await;
    let path = |id: &str| format!("/api/v1/namespaces/default/services/{id}/proxy/x");
    let none = "no endpoints available for service \"s\"";
    let told = async |id: &str| {
        let answer = started.get(&path(id)).await;
        (
            answer.code,
            if answer.code == 200 {
                String::new()
            } else {
                answer.message()
            },
        )
    };
    assert_eq!(told("s:web").await, (503, none.to_owned()));
    assert_eq!(
        told("s:82").await,
        (503, "no service port 82 found for service \"s\"".to_owned())
    );
    let slice = |ready: bool, address: &str| {
        json!({
            "metadata": {"name": "s-1", "labels": {"kubernetes.io/service-name": "s"}},
            "addressType": "IPv4",
            "ports": [{"name": "web", "port": web.port(), "protocol": "TCP"}],
            "endpoints": [{"addresses": [address], "conditions": {"ready": ready},
                           "targetRef": {"kind": "Pod", "namespace": "default", "name": "p"}}],
        })
    };
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    started.create(slices, &slice(true, &ip.to_string())).await;
    // No Pod has that address yet: whoever writes slices does not choose what is connected to.
    assert_eq!(told("s:web").await, (503, none.to_owned()));
    started.pod("p", "", &ip.to_string()).await;
    for id in ["s:web", "s:80", "http:s:web"] {
        assert_eq!(told(id).await, (200, String::new()), "{id}");
    }
    assert_eq!(told("s:other").await, (503, none.to_owned()));
    assert_eq!(told("s").await, (503, none.to_owned()));
    let (code, message) = told("https:s:web").await;
    assert_eq!(code, 503);
    assert!(message.starts_with("error trying to reach service: "), "{message}");
    started
        .merge(&format!("{slices}/s-1"), &slice(false, &ip.to_string()))
        .await;
    assert_eq!(told("s:web").await, (503, none.to_owned()));
}
