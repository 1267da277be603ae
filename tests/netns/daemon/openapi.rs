//! The OpenAPI description of the control socket agrees with the daemon's answers, for every path and method.

use serde_json::{Value, json};
use shunt_testkit::{Shuntd, Stage, Topology, require_root, rulesets, silent_router, wait_for};
use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    process::{Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;

/// Prints one line for each place where a value differs from its schema. Fails if the schema is none.
const VALIDATE: &str = include_str!("openapi.py");

/// A schema of draft 2020-12, for Python's jsonschema: a validator in Rust would bring more than thirty crates.
struct Validator(Value);

impl Validator {
    fn errors(&self, value: &Value) -> Vec<String> {
        let mut python = Command::new("python3");
        python.args(["-c", VALIDATE]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut running = python.spawn().unwrap();
        running.stdin.take().unwrap().write_all(json!([self.0, value]).to_string().as_bytes()).unwrap();
        let output = running.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{:#}: no schema, or Python lacks jsonschema (packaging/tools.txt)",
            self.0
        );
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    fn is_valid(&self, value: &Value) -> bool {
        self.errors(value).is_empty()
    }
}

/// The description that the daemon serves, with its objects closed: only the described members may occur.
fn closed_description(shuntd: &Shuntd) -> Value {
    let mut document: Value =
        serde_json::from_str(&request(shuntd, "get", "/v1/openapi.json", "").1).unwrap();
    let inlined: BTreeSet<String> = parts_of_others(&document["components"]["schemas"]);
    for (name, schema) in document["components"]["schemas"].as_object_mut().unwrap() {
        let is_object = schema["type"] == "object" || schema.get("allOf").is_some();
        if is_object && !inlined.contains(name) {
            schema["unevaluatedProperties"] = json!(false);
        }
    }
    document
}

/// Schemas whose members are also members of another object.
fn parts_of_others(schemas: &Value) -> BTreeSet<String> {
    let all_of = |schema: &Value| schema["allOf"].as_array().cloned().unwrap_or_default();
    let names = schemas.as_object().unwrap().values().flat_map(all_of);
    names.filter_map(|part| Some(part["$ref"].as_str()?.rsplit('/').next()?.to_owned())).collect()
}

/// The schema of an answer with this status.
fn validator(document: &Value, operation: &Value, status: &str) -> Validator {
    let content = operation["responses"][status]["content"].as_object();
    let mut schema =
        content.map(|content| content.values().next().unwrap()["schema"].clone()).unwrap_or_default();
    assert!(schema.is_object(), "{operation:#} does not describe status {status}");
    schema["components"] = document["components"].clone();
    Validator(schema)
}

#[track_caller]
fn assert_valid(validator: &Validator, what: &str, answer: &str) {
    let value: Value = serde_json::from_str(answer).unwrap_or_else(|e| panic!("{what}: {e}: {answer}"));
    let errors = validator.errors(&value);
    assert!(errors.is_empty(), "{what}: {errors:#?} in {value:#}");
}

/// A request body for each method that takes one.
fn body(method: &str, path: &str) -> String {
    let flow = json!({"in_port": "r0", "proto": "udp", "src": "192.0.2.1", "sport": 1, "dst": "192.0.2.2",
        "dport": 2, "route": {"out_port": "r1", "dmac": "02:00:00:00:00:01"}});
    match (method, path) {
        ("post", "/v1/static") => json!({"flow": [flow]}).to_string(),
        ("delete", "/v1/static") => json!({"all": true}).to_string(),
        ("post", "/v1/qos") => {
            json!({"r1": {"rate": "100M", "class": [{"name": "all", "dscp": ["ef"]}]}}).to_string()
        }
        ("post", "/v1/off") => {
            json!({"which": {"src": "192.0.2.1", "proto": "tcp"}, "for_s": 600}).to_string()
        }
        ("post", "/v1/history") => json!({"verdict": "equal", "connections": 2}).to_string(),
        ("post", "/v1/taps") => json!({"leaving": 0, "entering": [], "for_s": 1}).to_string(),
        ("delete", "/v1/off") => json!({}).to_string(),
        ("delete", "/v1/qos") => json!({"ports": ["r1"]}).to_string(),
        _ => String::new(),
    }
}

/// A report of the lab, which is served as it is.
const REPORT: &str = "<!DOCTYPE html><title>lab</title>";

fn request(shuntd: &Shuntd, method: &str, path: &str, body: &str) -> (u16, String) {
    shuntd.request(&method.to_uppercase(), path, body).unwrap()
}

/// The first line of the body of an endless answer.
fn watched(lab: &Topology, shuntd: &Shuntd) -> (u16, String) {
    let mut stream = UnixStream::connect(shuntd.socket()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(b"GET /v1/watch HTTP/1.0\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().contains(" 200 "));
    assert!(lines.by_ref().any(|line| line.is_empty()), "no end of the headers");
    lab.router().run("ip rule add from 198.51.100.9 lookup main");
    (200, lines.next().unwrap())
}

#[test]
fn every_path_and_method_answers_as_described() {
    if !require_root() {
        return;
    }
    let lab = silent_router(rulesets::OPEN);
    let reports = TempDir::new().unwrap();
    fs::write(reports.path().join("lab.html"), REPORT).unwrap();
    // Only the external engine has queues.
    let config = format!("page_reports = \"{}\"\nexternal_ports = [\"r1\"]", reports.path().display());
    let shuntd = Shuntd::on(lab.router()).config(&config).start();
    let stage = Stage::new(lab.lan(), &[lab.wan()]);
    stage.teach(&shuntd, &lab.lan().udp_to(4000, lab.wan().at(5000)).payload("v4 through the router"));
    stage.teach(&shuntd, &lab.lan().udp_to(4000, lab.wan().at6(5000)).payload("v6 through the router"));

    let document = closed_description(&shuntd);
    let paths = document["paths"].as_object().unwrap();
    let mut last = Vec::new();
    for (path, operations) in paths {
        let path = path.replace("{name}", "lab.html");
        for method in ["get", "post", "put", "delete", "patch", "options", "trace"] {
            let Some(operation) = operations.get(method) else {
                let (status, text) = request(&shuntd, method, &path, "");
                // A browser asks with OPTIONS whether a page of another site may use a path.
                let expected = if method == "options" { 403 } else { 405 };
                assert_eq!(status, expected, "{method} {path} is not described but answered: {text}");
                continue;
            };
            if [("/v1/restart", "post"), ("/v1/stop", "post")].contains(&(path.as_str(), method)) {
                last.push((path.clone(), operation));
                continue;
            }
            let what = format!("{method} {path}");
            let (status, text) = if path == "/v1/watch" {
                watched(&lab, &shuntd)
            } else {
                request(&shuntd, method, &path, &body(method, &path))
            };
            assert_eq!(status, 200, "{what}: {text}");
            if path == "/v1/flows" {
                assert_eq!(text.matches("\"orig\":{").count(), 2, "two flows: {text}");
            }
            if operation["responses"]["200"]["content"].get("text/plain").is_some() {
                assert!(text.starts_with("# HELP "), "{what}: {text}");
            } else if operation["responses"]["200"]["content"].get("text/html").is_some() {
                assert_eq!(text, REPORT, "{what}");
            } else {
                assert_valid(&validator(&document, operation, "200"), &what, &text);
            }
            let refusal = validator(&document, operation, "default");
            if operation.get("requestBody").is_some() {
                let (status, text) = request(&shuntd, method, &path, "{");
                assert_eq!(status, 400, "{what}: {text}");
                assert_valid(&refusal, &what, &text);
            }
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            if parameters.clone().any(|parameter| parameter["in"] == "query") {
                let (status, text) = request(&shuntd, method, &format!("{path}?nonsense=1"), "");
                assert_eq!(status, 400, "{what}: {text}");
                assert_valid(&refusal, &what, &text);
            }
        }
    }
    // The next daemon, which the first of them starts, is ended by the second, once one of the daemons answers.
    assert_eq!(last.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(), ["/v1/restart", "/v1/stop"]);
    for (path, operation) in last {
        let text = wait_for(Duration::from_secs(20), || {
            let (status, text) = shuntd.request("POST", &path, "").ok()?;
            (status == 200).then_some(text)
        });
        let text = text.unwrap_or_else(|| panic!("{path} is not answered"));
        assert_valid(&validator(&document, operation, "200"), &path, &text);
    }
    // Answers that differ from the description are found.
    let count = validator(&document, &document["paths"]["/v1/flush"]["post"], "200");
    assert!(count.is_valid(&json!({"count": 3})));
    for wrong in
        [json!({}), json!({"count": -1}), json!({"count": "3"}), json!({"count": 3, "more": 1}), json!([])]
    {
        assert!(!count.is_valid(&wrong), "{wrong}");
    }
}
