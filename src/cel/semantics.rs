//! What expressions mean: tables of cases.

use super::machine::{self, COST_MAX, WORK_MAX};
use super::run::{Budget, Input, Output, RunError};
use super::value::{Failure, Val};
use super::{Environment, Program};
use crate::tree::{Value, json};

fn environment() -> Environment {
    Environment::new().with("x")
}

fn run_with(expression: &str, x: &Value) -> Result<Output, String> {
    let program = Program::compile(expression, &environment()).map_err(|wrong| wrong.to_string())?;
    program
        .run(&[Input::Value(x)], &mut Budget::of(10_000_000))
        .map_err(|wrong| wrong.to_string())
}

fn run(expression: &str) -> Result<Output, String> {
    run_with(expression, &Value::Null)
}

/// All of these are true.
#[track_caller]
fn hold(expressions: &[&str]) {
    for expression in expressions {
        assert_eq!(run(expression), Ok(Output::Bool(true)), "{expression}");
    }
}

/// These end with that error of the run.
#[track_caller]
fn fail(cases: &[(&str, &str)]) {
    for (expression, wanted) in cases {
        assert_eq!(run(expression), Err((*wanted).to_owned()), "{expression}");
    }
}

#[test]
fn arithmetic_and_its_limits() {
    hold(&[
        "1 + 2 * 3 - 4 / 2 == 5",
        "7 % 3 == 1 && -7 % 3 == -1 && -7 / 2 == -3",
        "-(-5) == 5 && --5 == 5 && - 3 == 0 - 3",
        "1.5 + 1.5 == 3.0 && 1.0 / 0.0 > 1e300 && -1.0 / 0.0 < -1e300",
        "0.0 / 0.0 != 0.0 / 0.0",
        "2u + 3u == 5u && 0x10 == 16 && 0xFFu == 255u",
        "-9223372036854775808 < 0",
        "1e3 == 1000.0 && .5 == 0.5 && 2.5E-1 == 0.25",
    ]);
    fail(&[
        ("9223372036854775807 + 1 == 0", "integer overflow"),
        ("-9223372036854775808 - 1 == 0", "integer overflow"),
        ("-(-9223372036854775808) == 0", "integer overflow"),
        ("-9223372036854775808 / -1 == 0", "integer overflow"),
        ("1u - 2u == 0u", "unsigned integer overflow"),
        ("1 / 0 == 0", "division by zero"),
        ("1 % 0 == 0", "modulus by zero"),
        ("1u % 0u == 0u", "modulus by zero"),
    ]);
}

#[test]
fn comparison_knows_no_types_of_numbers() {
    hold(&[
        "1 < 2 && 1 < 1.5 && 1u < 2 && 2.0 >= 2u && -1 < 1u",
        "dyn(1) == 1.0 && dyn(1u) == 1 && dyn(1) != 1.5",
        "9007199254740993 > 9007199254740992.0",
        "dyn('a') != 1 && !(dyn('a') == 1)",
        "'a' < 'b' && b'a' < b'b' && false < true",
        "dyn([1, 2]) == [1.0, 2.0] && [1, 2] != [2, 1]",
        "{'a': 1, 'b': 2} == {'b': 2, 'a': 1} && {'a': 1} != {'a': 2}",
        "null == null && type(null) == null_type",
        "1 in [1, 2] && !(3 in [1, 2]) && 'a' in {'a': 1} && dyn(1.0) in [1]",
        "{1: 'a'}[1] == 'a' && {1: 'a'}[dyn(1u)] == 'a' && {true: 1}[true] == 1",
        "[1, 2, 3][1] == 2 && [1, 2, 3][dyn(2.0)] == 3",
    ]);
    fail(&[
        ("[1][1] == 1", "index out of bounds: 1"),
        ("[1][-1] == 1", "index out of bounds: -1"),
        ("{'a': 1}['b'] == 1", "no such key: b"),
        ("{'a': 1}.b == 1", "no such key: b"),
        ("dyn('a') < 1", "no such overload: _<_(string, int)"),
        ("dyn(1) + 'a' == 'b'", "no such overload: _+_(int, string)"),
        ("0.0/0.0 < 1.0", "NaN values cannot be ordered"),
        ("{'a': 1, 'a': 2} == {'a': 1}", "Failed with repeated key"),
    ]);
}

#[test]
fn logic_gets_over_errors_that_do_not_matter() {
    hold(&[
        "true || 1 / 0 == 1",
        "1 / 0 == 1 || true",
        "!(false && 1 / 0 == 1) && !(1 / 0 == 1 && false)",
        "true ? true : 1 / 0 == 1",
        "[1, 0].exists(i, 1 / i == 1) && [0, 1].exists(i, 1 / i == 1)",
        "![1, 0].all(i, 1 / i == 2)",
    ]);
    fail(&[
        ("1 / 0 == 1 || false", "division by zero"),
        ("1 / 0 == 1 && true", "division by zero"),
        ("[0, 2].exists(i, 1 / i == 1)", "division by zero"),
        ("(1 / 0 == 1) ? true : true", "division by zero"),
        ("[1, 0].exists_one(i, 1 / i == 1)", "division by zero"),
    ]);
}

#[test]
fn macros_go_over_lists_and_maps() {
    hold(&[
        "[1, 2, 3].all(i, i > 0) && [].all(i, false) && ![].exists(i, true)",
        "[1, 2, 3].exists_one(i, i == 2) && ![1, 1].exists_one(i, i == 1)",
        "[1, 2, 3].map(i, i * 2) == [2, 4, 6] && [1, 2, 3].map(i, i > 1, i * 2) == [4, 6]",
        "[1, 2, 3].filter(i, i != 2) == [1, 3]",
        "{'a': 1, 'b': 2}.all(k, k in ['a', 'b']) && {'a': 1}.map(k, k + '!') == ['a!']",
        "{'a': 1, 'b': 2}.filter(k, k == 'b') == ['b']",
        "[5, 6].all(i, v, v == i + 5) && {'a': 1}.exists(k, v, k == 'a' && v == 1)",
        "[1, 2].existsOne(i, v, v == 2)",
        "[1, 2, 3].transformList(i, v, i * v) == [0, 2, 6]",
        "[1, 2, 3].transformList(i, v, v > 1, v) == [2, 3]",
        "{'a': 1, 'b': 2}.transformMap(k, v, v * 10) == {'a': 10, 'b': 20}",
        "{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v) == {'b': 2}",
        "{'a': 'x', 'b': 'y'}.transformMapEntry(k, v, {v: k}) == {'x': 'a', 'y': 'b'}",
        "cel.bind(a, 'x' + 'y', a + a) == 'xyxy'",
        "[[1, 2], [3]].all(l, l.all(i, i < 4)) && [1].all(i, [2].all(i, i == 2) && i == 1)",
        "has({'a': 1}.a) && !has({'a': 1}.b)",
        "['b', 'c', 'a'].sortBy(e, e) == ['a', 'b', 'c'] && [1, 3, 2].sortBy(e, -e) == [3, 2, 1]",
    ]);
    fail(&[
        (
            "{'a': 1, 'b': 1}.transformMapEntry(k, v, {v: k}) == {1: 'a'}",
            "insert failed: key 1 already exists",
        ),
        ("dyn(1).all(i, true)", "got 'int', expected iterable type"),
    ]);
}

#[test]
fn optional_values() {
    hold(&[
        "optional.of(1).hasValue() && !optional.none().hasValue() && optional.of(1).value() == 1",
        "optional.none().orValue(2) == 2 && optional.of(1).or(optional.of(2)).value() == 1",
        "!optional.ofNonZeroValue('').hasValue() && optional.ofNonZeroValue([1]).hasValue()",
        "{'a': 1}.?a.orValue(0) == 1 && {'a': 1}.?b.orValue(0) == 0",
        "{'a': {'b': 1}}.?a.b.orValue(0) == 1 && {'a': {'b': 1}}.?x.b.orValue(7) == 7",
        "[1, 2][?1].value() == 2 && ![1][?5].hasValue() && {'a': 1}[?'b'].orValue(3) == 3",
        "[?optional.of(1), ?optional.none(), 2] == [1, 2]",
        "{?'a': optional.of(1), ?'b': optional.none()} == {'a': 1}",
        "optional.of(2).optMap(v, v * 2).value() == 4 && !optional.none().optMap(v, v).hasValue()",
        "optional.of(2).optFlatMap(v, optional.of(v)).value() == 2",
        "optional.of(1) == optional.of(1) && optional.none() == optional.none() && optional.of(1) != optional.none()",
        "[1, 2].first().value() == 1 && [1, 2].last().value() == 2 && ![].first().hasValue()",
        "optional.unwrap([optional.of(1), optional.none()]) == [1]",
        "has({'a': {'b': 1}}.?a.b) && !has({'a': {'b': 1}}.?x.b)",
    ]);
    fail(&[("optional.none().value() == 1", "optional.none() dereference")]);
}

#[test]
fn conversions() {
    hold(&[
        "int('42') == 42 && int(1.9) == 1 && int(-1.9) == -1 && int(5u) == 5 && int(timestamp('1970-01-01T00:01:00Z')) == 60",
        "uint(5) == 5u && uint('7') == 7u && double('1.5') == 1.5 && double(2) == 2.0",
        "string(1) == '1' && string(true) == 'true' && string(b'ab') == 'ab' && string(2u) == '2'",
        "string(1.0) == '1' && string(1.5) == '1.5' && string(0.00001) == '1e-05' && string(1e21) == '1e+21'",
        "string(duration('90s')) == '90s' && string(duration('1.5s')) == '1.5s' && string(duration('-1ms')) == '-0.001s'",
        "string(timestamp('2026-01-02T03:04:05.5Z')) == '2026-01-02T03:04:05.5Z'",
        "bytes('é') == b'\\303\\251' && size(bytes('é')) == 2 && size('é') == 1",
        "bool('true') && !bool('F') && type(1) == int && type('') == string && type(int) == type",
        "type([]) == list && type({}) == map && type(1.0) != int && type(timestamp(0)) == google.protobuf.Timestamp",
    ]);
    fail(&[
        ("int('x') == 1", "type conversion error from 'string' to 'int'"),
        ("int(1e30) == 1", "integer overflow"),
        ("uint(-1) == 1u", "unsigned integer overflow"),
        ("bool('yes')", "type conversion error from 'string' to 'bool'"),
        (
            "string(b'\\xff') == ''",
            "invalid UTF-8 in bytes, cannot convert to string",
        ),
    ]);
}

#[test]
fn texts() {
    hold(&[
        "'hello'.contains('ell') && 'hello'.startsWith('he') && 'hello'.endsWith('lo') && size('hello') == 5",
        "'hello'.charAt(4) == 'o' && 'hello'.charAt(5) == '' && 'héllo'.charAt(1) == 'é'",
        "'hello mellow'.indexOf('ello') == 1 && 'hello mellow'.indexOf('ello', 2) == 7 && 'a'.indexOf('b') == -1",
        "'hello mellow'.lastIndexOf('ello') == 7 && 'hello mellow'.lastIndexOf('ello', 6) == 1 && 'éa'.lastIndexOf('a') == 1",
        "'TacoCat'.lowerAscii() == 'tacocat' && 'tacoÆ'.upperAscii() == 'TACOÆ'",
        "'hello hello'.replace('he', 'we') == 'wello wello' && 'hello hello'.replace('he', 'we', 1) == 'wello hello'",
        "'ab'.replace('', '_') == '_a_b_' && 'hello'.replace('he', 'we', 0) == 'hello'",
        "'a,b,c'.split(',') == ['a', 'b', 'c'] && 'a,b,c'.split(',', 2) == ['a', 'b,c'] && 'a,b'.split(',', 0) == []",
        "'abc'.split('') == ['a', 'b', 'c'] && ''.split(',') == [''] && 'a,b'.split(',', 1) == ['a,b']",
        "'tacocat'.substring(4) == 'cat' && 'tacocat'.substring(0, 4) == 'taco' && 'añb'.substring(1, 2) == 'ñ'",
        "'  trim\\n '.trim() == 'trim' && ['a', 'b'].join() == 'ab' && ['a', 'b'].join('-') == 'a-b' && [].join('x') == ''",
        "strings.quote('a\"\\n') == '\"a\\\\\"\\\\n\"'",
        "'abc123'.matches('[0-9]+') && !matches('abc', '^b') && 'abc 123'.find('[0-9]+') == '123' && 'abc'.find('x') == ''",
        "'1 22 333'.findAll('[0-9]+') == ['1', '22', '333'] && '1 22 333'.findAll('[0-9]+', 2) == ['1', '22']",
        "r'\\d' == '\\\\d' && '\\u00e9' == 'é' && \"\"\"a\"b\"\"\" == 'a\"b' && '\\x41\\101' == 'AA'",
        "'%s is %d and %.2f%%'.format([dyn('x'), 5, 1.239]) == 'x is 5 and 1.24%'",
        "'%s %s %s'.format([dyn([dyn(1), 'a']), {'k': 2.5}, null]) == '[1, \"a\"] {\"k\": 2.5} null'",
        "'%x %X %b %o'.format([255, 255, 5, 8]) == 'ff FF 101 10' && '%x'.format(['hi']) == '6869'",
        "'%d'.format([1234567]) == '1,234,567'",
    ]);
    fail(&[
        ("'a'.substring(2) == ''", "index out of range: 2"),
        (
            "'abc'.substring(2, 1) == ''",
            "invalid substring range. start: 2, end: 1",
        ),
        ("'a'.charAt(-1) == ''", "index out of range: -1"),
        (
            "'%d'.format(['x']) == ''",
            "decimal clause can only be used on integers, was given string",
        ),
        ("'%s %s'.format(['x']) == ''", "index 1 out of range"),
        (
            "'%y'.format([1]) == ''",
            "could not parse formatting clause: unrecognized formatting clause \"y\"",
        ),
    ]);
}

#[test]
fn times() {
    hold(&[
        "timestamp('2026-01-02T03:04:05Z').getFullYear() == 2026 && timestamp('2026-01-02T03:04:05Z').getMonth() == 0",
        "timestamp('2026-01-02T03:04:05Z').getDate() == 2 && timestamp('2026-01-02T03:04:05Z').getDayOfMonth() == 1",
        "timestamp('2026-01-02T03:04:05Z').getDayOfWeek() == 5 && timestamp('2026-02-01T00:00:00Z').getDayOfYear() == 31",
        "timestamp('2026-01-02T03:04:05.006Z').getMilliseconds() == 6 && timestamp('2026-01-02T03:04:05Z').getHours('-02:30') == 0",
        "timestamp('2026-07-02T03:04:05Z').getHours('Europe/Vienna') == 5",
        "timestamp('2026-01-02T00:00:00Z') - timestamp('2026-01-01T00:00:00Z') == duration('24h')",
        "timestamp('2026-01-01T00:00:00Z') + duration('1h30m') == timestamp('2026-01-01T01:30:00Z')",
        "timestamp('2026-01-01T00:00:00+02:00') < timestamp('2026-01-01T00:00:00Z')",
        "duration('1h').getMinutes() == 60 && duration('90s') > duration('1m') && duration('1.5h') == duration('90m')",
        "duration('1ms').getMilliseconds() == 1 && duration('-1h') + duration('1h') == duration('0')",
    ]);
    fail(&[
        (
            "timestamp(dyn('x')) == timestamp(0)",
            "type conversion error from 'string' to 'google.protobuf.Timestamp'",
        ),
        (
            "timestamp('9999-12-31T23:59:59Z') + duration('1s') == timestamp(0)",
            "timestamp overflow",
        ),
        (
            "timestamp(0).getHours('Nowhere/City') == 0",
            "unknown time zone Nowhere/City",
        ),
    ]);
}

#[test]
fn lists_and_sets() {
    hold(&[
        "[1, 2, 2].isSorted() && !['b', 'a'].isSorted() && [1, 2, 3].sum() == 6 && [1.5, 1.0].sum() == 2.5",
        "[duration('1s'), duration('2s')].sum() == duration('3s') && [3, 1, 2].min() == 1 && ['a', 'c', 'b'].max() == 'c'",
        "[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2 && [1].indexOf(5) == -1",
        "[1, 2, 3, 4].slice(1, 3) == [2, 3] && [[1], [2, 3]].flatten() == [1, 2, 3] && [[[1]], [[2], [3]]].flatten(2) == [1, 2, 3]",
        "[3, 1, 2].sort() == [1, 2, 3] && lists.range(3) == [0, 1, 2] && [1, 2].reverse() == [2, 1] && [1, 2, 1].distinct() == [1, 2]",
        "[1] + [2, 3] == [1, 2, 3] && [] + [1] == [1] && ([1] + [2])[1] == 2 && size([1] + [2]) == 2",
        "sets.contains([1, 2, 3], [2, 3]) && !sets.contains([1], [2]) && sets.contains([1], [])",
        "sets.equivalent([1, 1], [1]) && !sets.equivalent([1], [1, 2]) && sets.intersects([1, 2], [2, 3]) && !sets.intersects([], [])",
    ]);
    fail(&[
        ("dyn([]).min() == 1", "min called on empty list"),
        ("[1].slice(0, 2) == []", "cannot slice(0, 2), list is length 1"),
        (
            "[1].slice(-1, 0) == []",
            "cannot slice(-1, 0), negative indexes not supported",
        ),
        (
            "lists.range(-1) == []",
            "lists.range: size must be non-negative, got -1",
        ),
    ]);
}

#[test]
fn urls_quantities_addresses_versions_and_formats() {
    hold(&[
        "url('https://user:pass@example.com:80/path?k1=a&k2=b&k2=c#f').getHost() == 'example.com:80'",
        "url('https://example.com:80/a b').getEscapedPath() == '/a%20b' && url('https://[::1]:80/').getHostname() == '::1'",
        "url('https://example.com/?k1=a&k2=b&k2=c').getQuery() == {'k1': ['a'], 'k2': ['b', 'c']}",
        "url('/p').getScheme() == '' && url('HTTPS://e/').getScheme() == 'https' && url('https://e:8/').getPort() == '8'",
        "isURL('/absolute') && !isURL('../relative') && !isURL('https://a:b:c/') && !isURL('')",
        "isQuantity('1.3Gi') && !isQuantity('1,3G') && !isQuantity('200K') && !isQuantity('Mi')",
        "quantity('200M').compareTo(quantity('0.2G')) == 0 && quantity('50M').isLessThan(quantity('50Mi'))",
        "quantity('50k').add(20).sub(quantity('100k')).sub(-50000) == quantity('20') && quantity('50k').asInteger() == 50000",
        "!quantity('500m').isInteger() && quantity('1500m').asApproximateFloat() == 1.5 && sign(quantity('-1')) == -1",
        "!quantity('9999999999999999999999999999999999999G').isInteger()",
        "ip('127.0.0.1').family() == 4 && ip('::1').isLoopback() && ip('0.0.0.0').isUnspecified() && string(ip('::1')) == '::1'",
        "isIP('::1') && !isIP('127.0.0.256') && !isIP('::ffff:1.2.3.4') && !isIP('fe80::1%eth0') && !isIP('127.0.0.01')",
        "ip.isCanonical('2001:db8::abcd') && !ip.isCanonical('2001:DB8::ABCD') && !ip.isCanonical('2001:db8::0:0:0:abcd')",
        "ip('224.0.0.1').isLinkLocalMulticast() && !ip('224.0.1.1').isLinkLocalMulticast() && ip('ff02::1').isLinkLocalMulticast()",
        "ip('169.254.169.254').isLinkLocalUnicast() && ip('192.168.0.1').isGlobalUnicast() && !ip('255.255.255.255').isGlobalUnicast()",
        "cidr('192.168.0.0/24').containsIP('192.168.0.1') && !cidr('192.168.0.0/24').containsIP(ip('192.168.1.1'))",
        "cidr('192.168.0.0/16').containsCIDR('192.168.10.0/24') && !cidr('192.168.1.0/24').containsCIDR(cidr('192.168.2.0/24'))",
        "cidr('192.168.0.1/24').masked() == cidr('192.168.0.0/24') && cidr('::1/128').prefixLength() == 128 && cidr('10.0.0.1/8').ip() == ip('10.0.0.1')",
        "isCIDR('::1/128') && !isCIDR('192.168.0.0/33') && !isCIDR('10.0.0.0') && string(cidr('10.0.0.0/8')) == '10.0.0.0/8'",
        "semver('1.2.3').major() == 1 && semver('1.2.3').isLessThan(semver('1.10.0')) && semver('1.0.0-alpha').isLessThan(semver('1.0.0'))",
        "semver('1.0.0-alpha.1').compareTo(semver('1.0.0-alpha.beta')) == -1 && semver('v1.0', true) == semver('1.0.0')",
        "isSemver('0.1.0-alpha.1') && !isSemver('v1.0') && isSemver('v1.0', true) && !isSemver('01.01.01') && isSemver('01.01.01', true)",
        "!format.dns1123Label().validate('my-label').hasValue() && format.dns1123Label().validate('My').hasValue()",
        "format.named('uuid').value().validate('123e4567-e89b-12d3-a456-426614174000') == optional.none() && !format.named('x').hasValue()",
        "format.date().validate('2021-13-01').value() == ['invalid date'] && !format.datetime().validate('2021-01-01T00:00:00Z').hasValue()",
        "!format.byte().validate('aGVsbG8=').hasValue() && format.byte().validate('a').hasValue() && format.uri().validate('x').hasValue()",
        "!format.dns1123LabelPrefix().validate('a-').hasValue() && format.labelValue().validate('a b').hasValue()",
    ]);
    fail(&[
        (
            "url('../relative') == url('/')",
            "URL parse error during conversion from string: parse \"../relative\": invalid URI for request",
        ),
        (
            "ip('::ffff:1.2.3.4').family() == 6",
            "IPv4-mapped IPv6 address \"::ffff:1.2.3.4\" is not allowed",
        ),
        ("quantity('0.5').asInteger() == 0", "cannot convert value to integer"),
    ]);
}

#[test]
fn values_of_objects_are_what_json_says() {
    let x = json!({"a": 1, "b": 1.5, "c": "t", "d": null, "e": [1, "two"], "f": {"g": {"h": true}}});
    for expression in [
        "x.a == 1 && x.b == 1.5 && x.c == 't' && x.d == null && x.e[1] == 'two' && x.f.g.h",
        "has(x.f.g) && !has(x.f.y) && has(x.d) && size(x) == 6 && size(x.e) == 2",
        "x.f == {'g': {'h': true}} && x.e == [dyn(1), 'two']",
        "x.?f.g.h.orValue(false) && 'a' in x && x['a'] == 1 && x.all(k, k != 'z')",
        "x.e.exists(i, i == 'two') && type(x.e) == list && type(x.f) == map && x.e + [3] == [dyn(1), dyn('two'), dyn(3)]",
    ] {
        assert_eq!(run_with(expression, &x), Ok(Output::Bool(true)), "{expression}");
    }
    assert_eq!(run_with("x.y", &x), Err("no such key: y".into()));
    assert_eq!(run_with("x.a.b", &x), Err("no such overload".into()));
}

#[test]
fn what_does_not_compile_is_told_where_it_is() {
    let wrong = |expression: &str| run(expression).expect_err(expression);
    for (expression, wanted) in [
        (
            "a.b",
            "ERROR: <input>:1:1: undeclared reference to 'a' (in container '')\n | a.b\n | ^",
        ),
        (
            "foo(1)",
            "ERROR: <input>:1:4: undeclared reference to 'foo' (in container '')\n | foo(1)\n | ...^",
        ),
        (
            "'a'.foo()",
            "ERROR: <input>:1:8: undeclared reference to 'foo' (in container '')\n | 'a'.foo()\n | .......^",
        ),
        (
            "'a' + 1",
            "ERROR: <input>:1:5: found no matching overload for '_+_' applied to '(string, int)'\n | 'a' + 1\n | ....^",
        ),
        (
            "'a'.startsWith(1)",
            "ERROR: <input>:1:15: found no matching overload for 'startsWith' applied to 'string.(int)'\n | 'a'.startsWith(1)\n | ..............^",
        ),
        (
            "[1, 'a']",
            "ERROR: <input>:1:5: expected type 'int' but found 'string'\n | [1, 'a']\n | ....^",
        ),
        (
            "1.all(i, true)",
            "ERROR: <input>:1:1: expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)\n | 1.all(i, true)\n | ^",
        ),
        (
            "[1].all(i, i)",
            "ERROR: <input>:1:8: found no matching overload for '_&&_' applied to '(bool, int)'\n | [1].all(i, i)\n | .......^",
        ),
        (
            "true ? 1 : 'a'",
            "ERROR: <input>:1:6: found no matching overload for '_?_:_' applied to '(bool, int, string)'\n | true ? 1 : 'a'\n | .....^",
        ),
        (
            "'a'.b",
            "ERROR: <input>:1:4: type 'string' does not support field selection\n | 'a'.b\n | ...^",
        ),
        (
            "has(x)",
            "ERROR: <input>:1:5: invalid argument to has() macro\n | has(x)\n | ....^",
        ),
        (
            "x.all(1, y)",
            "ERROR: <input>:1:7: argument must be a simple name\n | x.all(1, y)\n | ......^",
        ),
        ("if", "ERROR: <input>:1:1: reserved identifier: if\n | if\n | ^"),
        (
            "x.y(",
            "ERROR: <input>:1:5: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', ')', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | x.y(\n | ....^",
        ),
        (
            "1 2",
            "ERROR: <input>:1:3: Syntax error: extraneous input '2' expecting <EOF>\n | 1 2\n | ..^",
        ),
        (
            "(1",
            "ERROR: <input>:1:3: Syntax error: missing ')' at '<EOF>'\n | (1\n | ..^",
        ),
        (
            "1.5.2",
            "ERROR: <input>:1:4: Syntax error: extraneous input '.2' expecting <EOF>\n | 1.5.2\n | ...^",
        ),
        (
            "x # 1",
            "ERROR: <input>:1:3: Syntax error: token recognition error at: '#'\n | x # 1\n | ..^\nERROR: <input>:1:5: Syntax error: extraneous input '1' expecting <EOF>\n | x # 1\n | ....^",
        ),
        (
            "99999999999999999999",
            "ERROR: <input>:1:1: invalid int literal\n | 99999999999999999999\n | ^",
        ),
        (
            "true &&\n  'é' + 1",
            "ERROR: <input>:2:7: found no matching overload for '_+_' applied to '(string, int)'\n |   'é' + 1\n | ...．..^",
        ),
        (
            "'a'.matches('(')",
            "ERROR: <input>:1:13: invalid matches argument\n | 'a'.matches('(')\n | ............^",
        ),
        (
            "duration('x') == duration('1s')",
            "ERROR: <input>:1:10: invalid duration argument\n | duration('x') == duration('1s')\n | .........^",
        ),
        (
            "Object{}",
            "ERROR: <input>:1:7: undeclared reference to 'Object' (in container '')\n | Object{}\n | ......^",
        ),
    ] {
        assert_eq!(wrong(expression), wanted, "{expression}");
    }
}

#[test]
fn hostile_expressions_are_refused_in_bounded_time() {
    let compile = |expression: &str| Program::compile(expression, &environment());
    let refused = |expression: &str, why: &str| {
        let wrong = compile(expression).expect_err(why);
        assert!(wrong.to_string().contains(why), "{wrong:.200}");
    };
    refused(
        &format!("{}1{}", "(".repeat(3000), ")".repeat(3000)),
        "expression recursion limit exceeded: 250",
    );
    refused(
        &format!("{}1{}", "[".repeat(3000), "]".repeat(3000)),
        "expression recursion limit exceeded: 250",
    );
    refused(&vec!["1"; 10_000].join(" + "), "max recursion depth exceeded");
    refused(&format!("x{}", ".y".repeat(10_000)), "max recursion depth exceeded");
    refused(&"1 ? ".repeat(5000), "Syntax error");
    refused(
        &"1".repeat(200_000),
        "expression code point size exceeds limit: size: 200000, limit 100000",
    );
    assert!(compile(&vec!["true"; 10_000].join(" && ")).is_ok());
    assert!(compile(&format!("{}true", "!".repeat(90_000))).is_ok());
    // Types that double with every step.
    let mut doubling = "1".to_owned();
    for _ in 0..60 {
        doubling = format!("cel.bind(a, {doubling}, {{a: a}})");
    }
    let _ = compile(&doubling);
    let open = format!("{} == 1", vec!["[[]]"; 200].join(" + "));
    assert!(compile(&open).is_err());
}

#[test]
fn hostile_runs_are_cut_off() {
    let numbers: Value = (0..2000).collect::<Vec<i64>>().into();
    let big = json!({"list": (0..20_000).collect::<Vec<i64>>(), "text": "a".repeat(100_000), "numbers": []});
    let mut x = big.clone();
    x["numbers"] = numbers;
    let dear = |expression: &str| {
        let program = Program::compile(expression, &environment()).expect(expression);
        let outcome = program.run(&[Input::Value(&x)], &mut Budget::of(10_000_000));
        assert!(
            matches!(outcome, Err(RunError::TooDear | RunError::OutOfBudget)),
            "{expression:.80}"
        );
    };
    dear("x.numbers.all(a, x.numbers.all(b, a + b >= 0))");
    dear("x.numbers.map(a, x.list).flatten().size() > 0");
    dear("x.numbers.all(a, dyn(x.list) == x.list.map(b, b))");
    dear("x.numbers.all(a, x.text.replace('', x.text) != '')");
    dear("lists.range(100000000).size() > 0");
    dear("x.numbers.all(a, size(x.text) > 0 && x.text.matches('a' + string(a) + '+') || true)");
    dear("[x.list, x.list].all(l, l.distinct().size() > 0)");
    let mut text = "x.text".to_owned();
    for _ in 0..40 {
        text = format!("cel.bind(t, {text}, t + t)");
    }
    dear(&format!("{text} == ''"));
    // Lists that double cost nothing until they are gone through.
    let mut list = "x.list".to_owned();
    for _ in 0..62 {
        list = format!("cel.bind(l, {list}, l + l)");
    }
    dear(&format!("{list}.all(i, i >= 0)"));
    assert!(Program::compile(&format!("size({list}) > 0"), &environment()).is_ok());
}

#[test]
fn deep_trees_fit_a_small_stack() {
    let nested = |inner: &str| format!("{}{inner}{}", "[".repeat(248), "]".repeat(248));
    let folds = (0..80).fold("true".to_owned(), |body, _| format!("[1].all(i, {body})"));
    let expressions = [
        format!("{} == {}", nested("1"), nested("1")),
        format!("{} != {}", nested("1"), nested("2")),
        format!(
            "'%s'.format([{}]) != ''",
            nested("1").replacen("[[[", "[", 1).replacen("]]]", "]", 1)
        ),
        folds,
        vec!["1"; 249].join(" + "),
        format!("{}1{} == 1", "(".repeat(240), ")".repeat(240)),
        (0..80).fold("1".to_owned(), |inner, _| format!("{{'a': {inner}}}")),
    ];
    let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(move || {
        for expression in expressions {
            let program = Program::compile(&expression, &environment()).unwrap_or_else(|wrong| panic!("{wrong:.300}"));
            let _ = program.run(&[Input::Null], &mut Budget::of(10_000_000));
        }
    });
    thread.expect("a thread").join().expect("no overflow");
}

/// The cost of a run as kube-apiserver counts it.
#[track_caller]
fn cost(expression: &str) -> u64 {
    let x = json!({"list": [1, 2, 3], "text": "0123456789"});
    let program = Program::compile(expression, &environment()).expect(expression);
    let values = [Val::of_tree(&x, None).expect("a value")];
    let (outcome, used) = machine::run(&program, &values, COST_MAX, WORK_MAX);
    assert!(!matches!(outcome, Err(Failure::TooDear)));
    used.cost
}

#[test]
fn costs_are_counted_as_upstream_counts_them() {
    for (expression, wanted) in [
        ("true", 0),
        ("x.text", 2),
        ("has(x.text)", 1),
        ("1 + 2 == 3", 2),
        ("x.text == '0123456789'", 3),
        ("x.text.startsWith('0')", 3),
        ("x.text.contains('0123456789')", 3),
        ("[1, 2]", 10),
        ("{'a': 1}", 30),
        ("true || x.text == ''", 0),
        ("false ? x.text : 'a'", 0),
        // range 2, per step 2 + 1 + (1 + 1), result 1
        ("x.list.all(i, i > 0)", 2 + 3 * 5 + 1),
        ("x.list.exists(i, i > 0)", 2 + 6 + 1),
        ("x.list.map(i, i)", 2 + 10 + 3 * 13 + 1),
        ("x.list.filter(i, i > 1)", 2 + 10 + (2 + 1) + 2 * (2 + 13) + 1),
        ("1 in x.list", 2 + 3),
    ] {
        assert_eq!(cost(expression), wanted, "{expression}");
    }
}

mod any {
    use super::*;
    use proptest::prelude::*;

    fn expression() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("x".to_owned()),
            Just("x.a".to_owned()),
            Just("x.list".to_owned()),
            Just("null".to_owned()),
            any::<i8>().prop_map(|number| number.to_string()),
            any::<u8>().prop_map(|number| format!("{number}u")),
            any::<i16>().prop_map(|number| format!("{number}.5")),
            "[a-z é%]{0,4}".prop_map(|text| format!("'{text}'")),
            Just("[1, 2, 3]".to_owned()),
            Just("{'a': 1}".to_owned()),
            Just("duration('5s')".to_owned()),
            Just("timestamp('2026-01-01T00:00:00Z')".to_owned()),
            Just("b'ab'".to_owned()),
            Just("optional.of(1)".to_owned()),
        ];
        let binary = prop::sample::select(vec!["+", "-", "*", "/", "%", "==", "!=", "<", "<=", "in", "&&", "||"]);
        let method = prop::sample::select(vec![
            "size()",
            "all(i, i == i)",
            "exists(i, i > 1)",
            "map(i, i)",
            "filter(i, i != 1)",
            "exists_one(i, i == 1)",
            "sum()",
            "min()",
            "join()",
            "trim()",
            "split('')",
            "lowerAscii()",
            "substring(1)",
            "charAt(0)",
            "indexOf('a')",
            "lastIndexOf('a')",
            "replace('a', 'bb')",
            "reverse()",
            "sort()",
            "distinct()",
            "flatten(3)",
            "slice(0, 1)",
            "matches('a+')",
            "findAll('.')",
            "format([1, 'a'])",
            "getHours()",
            "hasValue()",
            "value()",
            "orValue(1)",
            "transformMap(k, v, k)",
            "transformList(k, v, v)",
            "transformMapEntry(k, v, {v: k})",
            "sortBy(e, e)",
            "isSorted()",
            "first()",
            "startsWith('a')",
            "a",
            "?a",
            "optMap(o, o)",
        ]);
        leaf.prop_recursive(5, 40, 3, move |inner| {
            prop_oneof![
                (inner.clone(), binary.clone(), inner.clone())
                    .prop_map(|(a, op, b)| format!("(dyn({a}) {op} dyn({b}))")),
                (inner.clone(), method.clone()).prop_map(|(a, method)| format!("dyn({a}).{method}")),
                (inner.clone(), inner.clone(), inner.clone())
                    .prop_map(|(a, b, c)| format!("(dyn({a}) ? dyn({b}) : dyn({c}))")),
                inner.clone().prop_map(|a| format!("string(dyn({a}))")),
                inner.clone().prop_map(|a| format!("int(dyn({a}))")),
                inner.clone().prop_map(|a| format!("type({a})")),
                (inner.clone(), inner).prop_map(|(a, b)| format!("dyn({a})[dyn({b})]")),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn no_expression_panics_and_costs_grow_with_the_object(expression in expression()) {
            let small = json!({"a": 1, "list": [1, 2]});
            let large = json!({"a": 1, "list": [1, 2, 3, 4, 5, 6]});
            let Ok(program) = Program::compile(&expression, &environment()) else { return Ok(()) };
            let run = |x: &Value| {
                let values = [Val::of_tree(x, None).expect("a value")];
                let (outcome, used) = machine::run(&program, &values, 100_000, 10_000_000);
                (outcome.map(|value| value.type_name()), used.cost)
            };
            let (first, cost) = run(&small);
            prop_assert_eq!(run(&small), (first.clone(), cost));
            prop_assert!(cost <= 100_000 || first == Err(Failure::TooDear));
            let _ = run(&large);
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}", words in prop::collection::vec(prop::sample::select(vec![
            "x", ".", "(", ")", "[", "]", "{", "}", "?", ":", ",", "&&", "||", "!", "-", "1", "1.5", "'a'", "all", "has", "map", "i",
            "==", "in", "+", "b'x'", "0x", "\"", "//", "\n", "é", "null", "true", "Object", "cel", "bind",
        ]), 0..30)) {
            let _ = Program::compile(&text, &environment());
            let _ = Program::compile(&words.concat(), &environment());
            let _ = Program::compile(&words.join(" "), &environment().with_objects());
        }
    }
}
