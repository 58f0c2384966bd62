//! How objects are converted between versions.

use std::collections::HashSet;

use crate::tree::Value;

use super::super::FieldError;
use super::super::admission::{check_service, check_url};
use super::super::names::dns_1035_label;
use super::super::validate::At;
use super::is_established;

/// Versions of `ConversionReview` that the server speaks.
const REVIEW_VERSIONS: &[&str] = &["v1", "v1beta1"];

/// What is wrong with a conversion. Inside the server the webhook's fields stand one level higher.
pub(super) fn check(old: Option<&Value>, conversion: &At<'_>, errors: &mut Vec<FieldError>) {
    if !conversion.present() {
        return;
    }
    let strategy = conversion.get("strategy");
    match strategy.text() {
        "" => errors.push(strategy.required("")),
        "None" | "Webhook" => {}
        _ => errors.push(strategy.not_supported(&["None", "Webhook"])),
    }
    let webhook = conversion.get("webhook");
    let client = webhook.get("clientConfig").named(conversion, "webhookClientConfig");
    let versions = webhook
        .get("conversionReviewVersions")
        .named(conversion, "conversionReviewVersions");
    if strategy.text() != "Webhook" {
        const UNUSED: &str = "should not be set when strategy is not set to Webhook";
        if client.present() {
            errors.push(client.forbidden(UNUSED));
        }
        if !versions.is_empty() {
            errors.push(versions.forbidden(UNUSED));
        }
        return;
    }
    if client.present() {
        let (url, service, bundle) = (client.get("url"), client.get("service"), client.get("caBundle"));
        match (url.present(), service.present()) {
            (true, false) => check_url(&url, errors),
            (false, true) => check_service(&service, errors),
            _ => errors.push(client.required("exactly one of url or service is required")),
        }
        let lenient = old.is_none_or(|old| {
            let before = old["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"]
                .as_str()
                .unwrap_or("");
            !is_established(old) || !before.is_empty() && bundle_fault(before).is_some()
        });
        if !bundle.is_empty()
            && !lenient
            && let Some(fault) = bundle_fault(bundle.text())
        {
            errors.push(bundle.invalid(format_args!("unable to load root certificates: {fault}")));
        }
    } else {
        errors.push(client.required("required when strategy is set to Webhook"));
    }
    let before = old.map(|old| &old["spec"]["conversion"]["webhook"]["conversionReviewVersions"]);
    check_versions(&versions, before, errors);
}

fn check_versions(versions: &At<'_>, before: Option<&Value>, errors: &mut Vec<FieldError>) {
    if versions.is_empty() {
        errors.push(versions.required(""));
        return;
    }
    let mut seen = HashSet::new();
    for version in versions.items() {
        if seen.insert(version.text()) {
            version.check(dns_1035_label(version.text()), errors);
        } else {
            errors.push(version.invalid("duplicate version"));
        }
    }
    let knows = |versions: &Value| {
        let mut versions = versions.as_array().into_iter().flatten().filter_map(Value::as_str);
        versions.any(|version| REVIEW_VERSIONS.contains(&version))
    };
    let must = before.is_none_or(|before| before.as_array().is_none_or(|list| list.is_empty()) || knows(before));
    if must && !knows(versions.value) {
        errors.push(versions.invalid("must include at least one of v1, v1beta1"));
    }
}

/// Why base64 is no bundle of certificates.
fn bundle_fault(text: &str) -> Option<&'static str> {
    const NONE: &str = "data does not contain any valid RSA or ECDSA certificates";
    use base64::Engine as _;
    use rustls_pki_types::pem::PemObject as _;
    let Ok(pem) = base64::prelude::BASE64_STANDARD.decode(text) else {
        return Some(NONE);
    };
    let mut certificates = rustls_pki_types::CertificateDer::pem_slice_iter(&pem);
    let any = certificates.next().is_some_and(|certificate| certificate.is_ok());
    (!any).then_some(NONE)
}
