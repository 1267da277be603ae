use super::*;
use crate::golden::{JSON, TEXT, show};

fn parsed(line: &str) -> Result<(Request, Option<Value>), String> {
    let mut id = None;
    match parse(line, &mut id) {
        Ok(request) => Ok((request, id)),
        Err(failure) => Err(failure.message),
    }
}

#[test]
fn requests_have_an_id_and_the_keys_of_a_stream() {
    let line = r#"{"id": 7, "request": "start", "streams": [{"name": "a", "rate": "5kpps", "size": 128, "vlan": [5, 6]}]}"#;
    let (request, id) = parsed(line).unwrap();
    let Request::Start { streams } = request else { panic!("{request:?}") };
    let spec = stream(&streams[0]).unwrap();
    assert_eq!(
        (id, spec.name.as_str(), spec.rate.to_string()),
        (Some(Value::from(7)), "a", "5kpps".to_owned())
    );
    assert_eq!((spec.shape.sizes.largest(), spec.shape.tags.len(), spec.duration), (128, 2, None));
    let (request, id) =
        parsed(r#"{"request": "rate", "stream": "a", "rate": "1kpps", "ramp-time": "2s"}"#).unwrap();
    assert!(matches!(request, Request::Rate { ramp_time: Some(_), ramp_steps: None, .. }) && id.is_none());
}

#[test]
fn a_bad_request_says_what_is_wrong() {
    for (line, why) in [
        ("start", "not a JSON object on one line"),
        ("[]", "not a JSON object on one line"),
        (r#"{"id": 1}"#, "`request` is missing: start, rate, stop, counters or wait"),
        (r#"{"request": "begin"}"#, "unknown value `begin`; known are start, rate"),
        (r#"{"request": "rate", "stream": "a"}"#, "the key `rate` is missing"),
        (r#"{"request": "stop", "name": "a"}"#, "unknown key `name`"),
    ] {
        let said = parsed(line).unwrap_err();
        assert!(said.contains(why), "{line}: {said}");
    }
    for (keys, why) in [
        ("rate = \"1kpps\"", "stream ``: name: missing"),
        ("name = \"a\"\nrate = \"fast\"", "stream `a`: rate: invalid value 'fast'"),
        (
            "name = \"a\"\nspeed = 1",
            "stream `a`: speed: a stream has no such option; its options are name, rate",
        ),
        ("name = \"a\"\nramp-time = \"1s\"", "stream `a`: ramp-from"),
    ] {
        let failure = stream(&keys.parse().unwrap()).unwrap_err();
        assert!(failure.message.starts_with(why), "{keys}: {failure}");
    }
}

#[test]
fn an_answer_is_one_line_of_json_with_and_without_the_option() {
    let error = Content::Error { code: FailureCode::Usage, message: "no".to_owned() };
    let answers = [
        (Reply { id: Some(1.into()), ok: true, content: Content::Nothing {} }, "{\"id\":1,\"ok\":true}\n"),
        (
            Reply { id: None, ok: true, content: Content::Started(vec!["a".to_owned()]) },
            "{\"ok\":true,\"started\":[\"a\"]}\n",
        ),
        (
            Reply { id: None, ok: false, content: error },
            "{\"ok\":false,\"error\":{\"code\":\"usage\",\"message\":\"no\"}}\n",
        ),
    ];
    for (reply, line) in answers {
        assert_eq!((show(&reply, JSON), show(&reply, TEXT)), (line.to_owned(), line.to_owned()));
    }
}
