//! Whole conversations, without IO; replies are decoded by an independent parser.

use std::sync::Arc;

use proptest::prelude::*;
use redis_protocol::resp2::decode::decode as decode2;
use redis_protocol::resp2::types::OwnedFrame as Frame2;
use redis_protocol::resp3::decode::complete::decode as decode3;
use redis_protocol::resp3::types::OwnedFrame as Frame3;
use sluicegate::policy::{Document, PolicySet};
use sluicegate::{Engine, Micros};

use super::*;
use crate::authenticator::ListenerAuth;
use crate::authenticator::tests::{END, Stage, open_listener};
use crate::config::TokensRequired;
use crate::protocol::Wire;

mod caller_rules;

const POLICIES: &str = "
policies:
  - { name: login, rules: [ { name: tries, sliding_log: { limit: 2, window: 10s } } ] }
  - { name: api, apps: [shop], rules: [ { token_bucket: { rate: 2/s, burst: 1 } } ] }
  - { name: jobs, rules: [ { name: slots, concurrency: { limit: 1, ttl: 30s } } ] }
  - { name: seen, overflow: shadow, rules: [ { name: slots, concurrency: { limit: 1, ttl: 30s } } ] }
  - { name: later, overflow: { degrade: { tag: cached } }, rules: [ { name: slots, concurrency: { limit: 1, ttl: 30s } } ] }
  - { name: shadow, overflow: shadow, rules: [ { name: r, sliding_log: { limit: 1, window: 1s } } ] }
  - { name: tag, overflow: { degrade: { tag: cached } }, rules: [ { name: r, sliding_log: { limit: 1, window: 1s } } ] }
  - name: body
    overflow: { degrade: { response: { status: 503, body: later } } }
    rules: [ { name: r, sliding_log: { limit: 1, window: 1s } } ]
  - { name: leaky, rules: [ { name: r, leaky_bucket: { rate: 1/s, burst: 5 } } ] }
  - { name: divert, overflow: { divert: { target: slow } }, rules: [ { name: r, sliding_log: { limit: 1, window: 1s } } ] }
";

/// A connection to a server.
struct Connection {
    engine: Arc<Engine>,
    password: Option<Password>,
    listener_auth: ListenerAuth,
    guesses: Guesses,
    /// The time, which stands still unless a test moves it.
    now: Micros,
    session: Session,
    limits: ConnectionRuleCache,
    rules: CallerRuleCache,
    replies: Replies,
    next: NextStep,
}

/// The login checks for a client of this machine.
fn entry<'e>(
    password: Option<&'e Password>,
    listener_auth: &'e ListenerAuth,
    guesses: &'e Guesses,
) -> AuthContext<'e> {
    AuthContext { password, listener_auth, guesses, network: ClientNetwork::Here }
}

impl Connection {
    /// A connection to a server without a catalog.
    fn new(password: &str) -> Self {
        Self::at(open_listener(Wire::Resp), password)
    }

    fn at(listener_auth: ListenerAuth, password: &str) -> Self {
        let policies = Document::parse(POLICIES).expect("POLICIES is valid");
        let password = Password::new(password);
        Self {
            engine: Arc::new(Engine::in_memory(PolicySet::new(policies))),
            session: Session::new(7, entry(password.as_ref(), &listener_auth, &Guesses::default())),
            guesses: Guesses::default(),
            now: Micros::ZERO,
            password,
            listener_auth,
            limits: ConnectionRuleCache::new(Arc::default()),
            rules: CallerRuleCache::default(),
            replies: Replies::default(),
            next: NextStep::GoOn,
        }
    }

    /// Connects the client again.
    fn reconnect(&mut self) {
        self.session =
            Session::new(8, entry(self.password.as_ref(), &self.listener_auth, &self.guesses));
        self.next = NextStep::GoOn;
    }

    /// The reply to `words`.
    fn say(&mut self, words: &[&[u8]]) -> Vec<u8> {
        self.replies.clear();
        match Command::decode(words) {
            Ok(Command::Decide(_)) if self.session.discards(&mut self.replies) => {}
            Ok(Command::Decide(question)) => self.decide(question),
            Ok(Command::Talk(talk)) => {
                let entry = entry(self.password.as_ref(), &self.listener_auth, &self.guesses);
                self.next = self.session.talk(talk, entry, self.now, &mut self.replies);
            }
            Err(refusal) => self.replies.refusal(&refusal),
        }
        self.replies.bytes().to_vec()
    }

    fn decide(&mut self, question: DecisionRequest<'_>) {
        let caller = match self.session.caller(&self.listener_auth, self.now) {
            Ok(caller) => caller.clone(),
            Err(refused) => return self.replies.refusal(&refused.into()),
        };
        let mut question = question;
        if let Err(refused) = question.asked_by(&caller) {
            return self.replies.refusal(&refused.into());
        }
        if let Err(refused) = question.read_rules(&self.rules) {
            return self.replies.refusal(&refused);
        }
        let turn = self.engine.turn_at(self.now);
        let passed = match question.sent_rules(&mut self.limits) {
            None => turn.try_decide(&question.request),
            Some(rules) => turn.try_decide(&question.under(rules)),
        };
        question.reply(&passed.expect("memory waits for nobody"), &mut self.replies);
    }

    /// The reply to a line of words, as text with line ends shown as blanks.
    fn line(&mut self, line: &str) -> String {
        let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
        String::from_utf8(self.say(&words))
            .expect("text")
            .replace("\r\n", " ")
            .trim_end()
            .to_owned()
    }
}

/// Asserts the reply to each line of a connection.
#[track_caller]
fn check(password: &str, lines: &[(&str, &str)]) {
    let mut connection = Connection::new(password);
    for (line, expected) in lines {
        assert_eq!(connection.line(line), *expected, "{line}");
    }
}

const NO_AUTH: &str = "-NOAUTH Authentication required.";
const EXPIRED: &str = "-WRONGPASS the token has expired";
const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.";

#[test]
fn passes_refusals_and_what_is_not_configured_are_three_codes() {
    check(
        "",
        &[
            ("SG.CHECK login a", "*8 :1 :2 :1 :0 :10000 :0 $5 tries $5 store"),
            ("sg.check login a", "*8 :1 :2 :0 :0 :10000 :0 $5 tries $5 store"),
            ("SG.CHECK login a", "*8 :-1 :2 :0 :10000 :10000 :0 $5 tries $5 store"),
            ("SG.CHECK login a COST 3", "*8 :-1 :2 :0 :-1 :10000 :0 $5 tries $5 store"),
            ("SG.CHECK nope a", "*8 :0 :0 :0 :-1 :0 :0 $-1 $-1"),
            ("SG.CHECK api a", "*8 :0 :0 :0 :-1 :0 :0 $-1 $-1"),
            ("SG.CHECK api a APP shop", "*8 :1 :1 :0 :0 :500 :0 $12 token_bucket $5 store"),
            ("SG.CHECK api a APP other", "*8 :0 :0 :0 :-1 :0 :0 $-1 $-1"),
            // A request that rules delay passes, and the caller waits.
            ("SG.CHECK leaky a", "*8 :1 :6 :5 :0 :1000 :0 $1 r $5 store"),
            ("SG.CHECK leaky a", "*8 :1 :6 :4 :0 :2000 :1000 $1 r $5 store"),
        ],
    );
}

#[test]
fn what_is_over_the_limit_and_not_just_refused_says_what_the_policy_says() {
    let passed = "*8 :1 :1 :0 :0 :1000 :0 $1 r $5 store";
    check(
        "",
        &[
            ("SG.CHECK shadow a", passed),
            ("SG.CHECK shadow a", "*11 :1 :1 :0 :1000 :1000 :0 $1 r $5 store $6 shadow $-1 $-1"),
            ("SG.CHECK tag a", passed),
            (
                "SG.CHECK tag a",
                "*11 :-1 :1 :0 :1000 :1000 :0 $1 r $5 store $7 degrade $6 cached $-1",
            ),
            ("SG.PEEK tag a", "*8 :-1 :1 :0 :1000 :1000 :0 $1 r $5 store"),
            ("SG.CHECK body a", passed),
            (
                "SG.CHECK body a",
                "*11 :-1 :1 :0 :1000 :1000 :0 $1 r $5 store $7 degrade $5 later :503",
            ),
            ("SG.CHECK divert a", passed),
            (
                "SG.CHECK divert a",
                "*11 :-1 :1 :0 :1000 :1000 :0 $1 r $5 store $6 divert $4 slow $-1",
            ),
        ],
    );
}

#[test]
fn what_may_wait_is_told_how_long() {
    check(
        "",
        &[
            ("SG.CHECK api a APP shop", "*8 :1 :1 :0 :0 :500 :0 $12 token_bucket $5 store"),
            (
                "SG.CHECK api a APP shop MAXWAIT 499",
                "*8 :-1 :1 :0 :1 :500 :0 $12 token_bucket $5 store",
            ),
            (
                "SG.CHECK api a APP shop MAXWAIT 500",
                "*8 :1 :1 :0 :0 :1000 :500 $12 token_bucket $5 store",
            ),
        ],
    );
}

#[test]
fn budgets_are_looked_at_refunded_and_forgotten() {
    check(
        "",
        &[
            ("SG.CHECK login a COST 2", "*8 :1 :2 :0 :0 :10000 :0 $5 tries $5 store"),
            ("SG.PEEK login a", "*8 :-1 :2 :0 :10000 :10000 :0 $5 tries $5 store"),
            ("SG.REFUND login a", "*8 :1 :2 :1 :0 :10000 :0 $5 tries $5 store"),
            ("SG.RESET login a", "*8 :1 :2 :2 :0 :0 :0 $5 tries $5 store"),
            ("SG.CHECK login  COST 2", "*8 :1 :2 :0 :0 :10000 :0 $5 tries $5 store"),
            ("SG.PEEK login ", "*8 :-1 :2 :0 :10000 :10000 :0 $5 tries $5 store"),
            ("SG.PEEK login a", "*8 :1 :2 :2 :0 :0 :0 $5 tries $5 store"),
        ],
    );
}

#[test]
fn permits_are_held_and_given_back_by_whoever_knows_their_name() {
    check(
        "",
        &[
            ("SG.ACQUIRE jobs q one", "*8 :1 :1 :0 :0 :30000 :0 $5 slots $5 store"),
            ("SG.ACQUIRE jobs q two", "*8 :-1 :1 :0 :30000 :30000 :0 $5 slots $5 store"),
            ("SG.RENEW jobs q one", "*8 :1 :1 :0 :0 :30000 :0 $5 slots $5 store"),
            ("SG.RENEW jobs q two", "*8 :-1 :1 :0 :-1 :30000 :0 $5 slots $5 store"),
            ("SG.RELEASE jobs q one", "*8 :1 :1 :1 :0 :0 :0 $5 slots $5 store"),
            ("SG.RELEASE jobs q one", "*8 :-1 :1 :1 :-1 :0 :0 $5 slots $5 store"),
            (
                "SG.CHECK jobs q",
                "-NOTCHARGED op: `check` is not supported by this policy: it has a `concurrency` rule, use `acquire`",
            ),
        ],
    );
}

#[test]
fn overflow_means_for_acquire_what_it_means_for_check() {
    let held = "*8 :1 :1 :0 :0 :30000 :0 $5 slots $5 store";
    check(
        "",
        &[
            ("SG.ACQUIRE seen q one", held),
            (
                "SG.ACQUIRE seen q two",
                "*11 :1 :1 :0 :30000 :30000 :0 $5 slots $5 store $6 shadow $-1 $-1",
            ),
            (
                "SG.RENEW seen q two",
                "*11 :1 :1 :0 :-1 :30000 :0 $5 slots $5 store $6 shadow $-1 $-1",
            ),
            (
                "SG.RELEASE seen q two",
                "*11 :1 :1 :0 :-1 :30000 :0 $5 slots $5 store $6 shadow $-1 $-1",
            ),
            ("SG.RENEW seen q one", held),
            ("SG.ACQUIRE later q one", held),
            (
                "SG.ACQUIRE later q two",
                "*11 :-1 :1 :0 :30000 :30000 :0 $5 slots $5 store $7 degrade $6 cached $-1",
            ),
            ("SG.RELEASE later q two", "*8 :-1 :1 :0 :-1 :30000 :0 $5 slots $5 store"),
        ],
    );
}

#[test]
fn clients_that_connect_get_the_answers_of_redis() {
    check(
        "",
        &[
            ("PING", "+PONG"),
            ("PING hi", "$2 hi"),
            ("ECHO hi", "$2 hi"),
            ("SELECT 0", "+OK"),
            ("SELECT 1", "-ERR DB index is out of range"),
            ("CLIENT GETNAME", "$-1"),
            ("CLIENT SETNAME shop-1", "+OK"),
            ("CLIENT GETNAME", "$6 shop-1"),
            ("CLIENT SETINFO LIB-NAME redis-py", "+OK"),
            ("CLIENT ID", ":7"),
            ("CLIENT INFO", "$42 id=7 name=shop-1 db=0 resp=2 user=default"),
            ("COMMAND COUNT", ":21"),
            ("COMMAND DOCS nope", "*0"),
            ("COMMAND GETKEYS sg.check p k", "*1 $1 k"),
            ("COMMAND GETKEYS ping", "-ERR The command has no key arguments"),
            (
                "COMMAND GETKEYS sg.check p",
                "-ERR Invalid number of arguments specified for command",
            ),
            ("COMMAND INFO sg.check nope", "*2 *6 $8 sg.check :-3 *1 +fast :2 :2 :1 *-1"),
            ("INFO persistence", "$26 # Persistence loading:0"),
            ("AUTH default x", "+OK"),
            ("RESET", "+RESET"),
            ("CLIENT GETNAME", "$-1"),
            ("QUIT", "+OK"),
        ],
    );
}

#[test]
fn what_is_no_command_is_told_so_on_one_line() {
    let long = "x".repeat(300);
    check(
        "",
        &[
            ("GET a\nb", "-ERR unknown command 'GET', with args beginning with: 'a\\nb'"),
            ("PINGPONGPING", "-ERR unknown command 'PINGPONGPING', with args beginning with:"),
            ("ECHO", "-ERR wrong number of arguments for 'echo' command"),
            ("PING a b", "-ERR wrong number of arguments for 'ping' command"),
            (
                "COMMAND NOPE",
                "-ERR unknown subcommand, expected COMMAND COUNT, DOCS, GETKEYS, INFO or LIST",
            ),
            ("CLIENT SETNAME a\tb", {
                "-ERR Client names cannot contain spaces, newlines or special characters."
            }),
            (&format!("CLIENT SETNAME {long}"), "-ERR name: `300` bytes are outside 0..=256"),
            ("AUTH x", {
                "-ERR AUTH <password> called without any password configured for the default \
                 user. Are you sure your configuration is correct?"
            }),
        ],
    );
    let told = Connection::new("").line(&format!("{long} {long} {long}"));
    assert!(told.len() < 400, "{} bytes", told.len());
}

#[test]
fn what_follows_a_multi_takes_nothing_until_its_end() {
    let failed = "-ERR not executed: MULTI failed; send EXEC, DISCARD or RESET first";
    let multi = "-ERR unknown command 'MULTI': there are no transactions here; what follows is not \
                 executed until EXEC, DISCARD or RESET";
    check(
        "",
        &[
            ("EXEC", "-ERR EXEC without MULTI"),
            ("DISCARD", "-ERR DISCARD without MULTI"),
            ("MULTI", multi),
            ("SG.CHECK login a", failed),
            ("CL.THROTTLE k 1 1 1", failed),
            ("PING", failed),
            ("MULTI", failed),
            ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
            ("SG.PEEK login a", "*8 :1 :2 :2 :0 :0 :0 $5 tries $5 store"),
            ("MULTI", multi),
            ("DISCARD", "+OK"),
            ("MULTI", multi),
            ("RESET", "+RESET"),
            ("PING", "+PONG"),
        ],
    );
}

/// The fields that redis-cli needs for its hints: names, words, and which of them are optional.
#[test]
fn the_documentation_of_a_command_has_its_arguments() {
    let mut connection = Connection::new("");
    let list = connection.line("COMMAND LIST");
    assert!(list.starts_with("*21 $11 cl.throttle $8 sg.check "), "{list}");
    let docs = connection.line("COMMAND DOCS SG.RENEW");
    let word = |name: &str| format!("*4 $4 name ${} {name} $4 type $6 string", name.len());
    let app = "*8 $4 name $3 app $4 type $6 string $5 token $3 APP $5 flags *1 +optional";
    let rules = "*8 $4 name $4 json $4 type $6 string $5 token $5 RULES $5 flags *1 +optional";
    let summary = "Holds a permit for another `ttl`.";
    let expected = format!(
        "*2 $8 sg.renew *8 $7 summary ${} {summary} $5 since $5 7.2.0 $5 group $10 sluicegate \
         $9 arguments *5 {} {} {} {app} {rules}",
        summary.len(),
        word("policy"),
        word("key"),
        word("id"),
    );
    assert_eq!(docs, expected);
    connection.line("HELLO 3");
    assert!(connection.line("COMMAND DOCS").starts_with("%21 $11 cl.throttle %4 $7 summary"));
}

#[test]
fn clients_that_cache_find_nothing_to_cache() {
    check(
        "",
        &[
            ("CLIENT TRACKING ON OPTIN", "+OK"),
            ("CLIENT TRACKING off", "+OK"),
            ("CLIENT LIST", "$36 id=7 name= db=0 resp=2 user=default"),
        ],
    );
    let refused = Connection::new("").line("CLIENT TRACKING x");
    assert!(
        refused.starts_with("-ERR unknown subcommand or wrong number of arguments"),
        "{refused}"
    );
}

#[test]
fn hello_chooses_the_protocol_of_what_follows() {
    let rest =
        "$6 server $10 sluicegate $7 version $5 7.2.0 $18 sluicegate_version $5 0.1.0 $5 proto";
    let end = "$2 id :7 $4 mode $10 standalone $4 role $6 master $7 modules *0";
    check(
        "",
        &[
            ("HELLO", &format!("*16 {rest} :2 {end}")),
            ("HELLO 3 SETNAME me", &format!("%8 {rest} :3 {end}")),
            ("CLIENT GETNAME", "$2 me"),
            ("COMMAND INFO nope", "*1 _"),
            ("COMMAND DOCS nope", "%0"),
            ("SG.CHECK nope a", "*8 :0 :0 :0 :-1 :0 :0 _ _"),
            ("HELLO 4", "-NOPROTO unsupported protocol version"),
            ("HELLO x", "-ERR Protocol version is not an integer or out of range"),
            ("HELLO 2 FOO", "-ERR Syntax error in HELLO option 'FOO'"),
            ("HELLO 2 AUTH a", "-ERR Syntax error in HELLO option 'AUTH'"),
            ("COMMAND INFO nope", "*1 _"),
            ("HELLO 2", &format!("*16 {rest} :2 {end}")),
            ("COMMAND INFO nope", "*1 *-1"),
        ],
    );
}

#[test]
fn without_the_password_nobody_may_ask() {
    check(
        "hunter2",
        &[
            ("PING", NO_AUTH),
            ("SG.CHECK login a", NO_AUTH),
            ("CL.THROTTLE k 1 1 1", NO_AUTH),
            ("AUTH hunter", WRONG),
            ("AUTH other hunter2", WRONG),
            ("HELLO 3 AUTH default x", WRONG),
            ("INFO", NO_AUTH),
            ("AUTH hunter2", "+OK"),
            ("PING", "+PONG"),
            ("SG.CHECK login a", "*8 :1 :2 :1 :0 :10000 :0 $5 tries $5 store"),
            ("RESET", "+RESET"),
            ("PING", NO_AUTH),
            ("AUTH default hunter2", "+OK"),
            ("PING", "+PONG"),
        ],
    );
    let mut connection = Connection::new("hunter2");
    assert!(connection.line("HELLO 3").starts_with("-NOAUTH HELLO must be called"));
    assert!(connection.line("HELLO 3 AUTH default hunter2").starts_with("%8 "));
    assert_eq!(connection.line("PING"), "+PONG");
}

#[test]
fn who_guesses_passwords_has_to_connect_again() {
    let mut connection = Connection::new("hunter2");
    for _ in 0..7 {
        assert_eq!(connection.line("AUTH x"), WRONG);
        assert_eq!(connection.line("RESET"), "+RESET");
        assert_eq!(connection.next, NextStep::GoOn);
    }
    assert_eq!(connection.line("AUTH x"), WRONG);
    assert_eq!(connection.next, NextStep::Close);
}

#[test]
fn wrong_passwords_of_many_connections_are_of_one_network() {
    let mut connection = Connection::new("hunter2");
    let mut words = 0;
    for _ in 0..4 {
        connection.reconnect();
        while connection.next == NextStep::GoOn {
            let reply = connection.line(&format!("AUTH guess{words}"));
            words += 1;
            let late = "-ERR too many wrong passwords from this network: retry in 6 s";
            assert_eq!(reply, if words <= 30 { WRONG } else { late });
        }
    }
    connection.reconnect();
    assert!(connection.line("AUTH hunter2").starts_with("-ERR too many wrong passwords"));
    connection.now = Micros::from_secs(6);
    assert_eq!(connection.line("AUTH hunter2"), "+OK");
}

#[test]
fn a_token_is_good_also_from_a_network_with_wrong_passwords() {
    let (_stage, mut connection) = with_tokens(LOOPBACK, "hunter2");
    for guess in 0..40 {
        connection.reconnect();
        connection.line(&format!("AUTH guess{guess}"));
    }
    assert!(connection.line("AUTH hunter2").starts_with("-ERR too many wrong passwords"));
    assert_eq!(connection.line("AUTH good"), "+OK");
}

const LOOPBACK: &str = "127.0.0.1:1";
const ELSEWHERE: &str = "0.0.0.0:1";

/// A connection to `address` of a server with a catalog.
fn with_tokens(address: &str, password: &str) -> (Stage, Connection) {
    let stage = Stage::set(TokensRequired::Remote);
    let connection = Connection::at(stage.listener_auth(Wire::Resp, address), password);
    (stage, connection)
}

#[test]
fn a_token_is_said_as_a_password_and_its_app_as_a_user() {
    for (login, expected) in [
        ("AUTH good", "+OK"),
        ("AUTH default good", "+OK"),
        ("AUTH shop good", "+OK"),
        ("AUTH other good", WRONG),
        ("AUTH other foreign", "+OK"),
        ("AUTH reads", "+OK"),
        ("AUTH ended", EXPIRED),
        ("AUTH revoked", WRONG),
        ("AUTH nobody", WRONG),
        ("AUTH default x", WRONG),
        ("AUTH hunter2", WRONG),
    ] {
        for (hello, address) in [(false, LOOPBACK), (false, ELSEWHERE), (true, ELSEWHERE)] {
            let (_stage, mut connection) = with_tokens(address, "");
            let words: Vec<_> = login.split(' ').collect();
            let [user, secret] = [words[words.len() - 2], words[words.len() - 1]];
            let user = if user == "AUTH" { "default" } else { user };
            let greeted = connection.line(&match hello {
                true => format!("HELLO 2 AUTH {user} {secret}"),
                false => login.to_owned(),
            });
            let is_in = expected == "+OK";
            assert!(if hello && is_in { greeted.starts_with("*16 ") } else { greeted == expected });
            assert_eq!(connection.line("PING"), if is_in { "+PONG" } else { NO_AUTH }, "{login}");
        }
    }
}

#[test]
fn a_request_is_that_of_the_app_of_its_token() {
    let passed = "*8 :1 :1 :0 :0 :500 :0 $12 token_bucket $5 store";
    let refused = "*8 :-1 :1 :0 :500 :500 :0 $12 token_bucket $5 store";
    let not_configured = "*8 :0 :0 :0 :-1 :0 :0 $-1 $-1";
    let other_app = "-NOPERM the token belongs to another app";
    for address in [LOOPBACK, ELSEWHERE] {
        let (_stage, mut connection) = with_tokens(address, "");
        for (line, expected) in [
            ("AUTH good", "+OK"),
            ("SG.CHECK api k", passed),
            ("SG.CHECK api k APP shop", refused),
            ("SG.CHECK api k APP other", other_app),
            ("SG.CHECK nope k", not_configured),
            ("AUTH foreign", "+OK"),
            ("SG.CHECK api k", not_configured),
            ("SG.CHECK api k APP shop", other_app),
            ("RESET", "+RESET"),
            ("SG.CHECK api k APP shop", if address == LOOPBACK { refused } else { NO_AUTH }),
        ] {
            assert_eq!(connection.line(line), expected, "{line}");
        }
    }
}

const CHECK_BY_RULES: &str = "SG.CHECK mine a RULES \
    [{\"name\":\"tries\",\"sliding_log\":{\"limit\":2,\"window\":\"10s\"}}]";

#[test]
fn a_token_does_what_it_is_for_and_nothing_else() {
    let passed = "*8 :1 :2 :1 :0 :10000 :0 $5 tries $5 store";
    let (no_check, no_refund) =
        ("-NOPERM the token lacks the scope `check`", "-NOPERM the token lacks the scope `refund`");
    let (_stage, mut connection) = with_tokens(ELSEWHERE, "");
    for (line, expected) in [
        ("AUTH checks", "+OK"),
        ("SG.CHECK login a", passed),
        ("SG.PEEK login a", passed),
        ("SG.REFUND login a", no_refund),
        ("SG.RESET login a", no_refund),
        ("CL.THROTTLE k 1 1 1", "*5 :0 :2 :1 :-1 :1"),
        ("AUTH refunds", "+OK"),
        ("SG.CHECK login a", no_check),
        ("SG.ACQUIRE jobs q one", no_check),
        ("SG.RELEASE jobs q one", no_check),
        ("CL.THROTTLE k 1 1 1", no_check),
        ("SG.REFUND login a", "*8 :1 :2 :2 :0 :0 :0 $5 tries $5 store"),
        ("SG.RESET login a", "*8 :1 :2 :2 :0 :0 :0 $5 tries $5 store"),
        ("AUTH reads", "+OK"),
        ("PING", "+PONG"),
        ("SG.CHECK login a", no_check),
        ("SG.RESET login a", no_refund),
        // Rules that come along need the scope of their verb, which is checked before they are read.
        ("SG.CHECK mine a RULES {", no_check),
        ("SG.RESET mine a RULES {", no_refund),
        ("AUTH checks", "+OK"),
        (CHECK_BY_RULES, passed),
        ("SG.PEEK login a", "*8 :1 :2 :2 :0 :0 :0 $5 tries $5 store"),
        ("SG.REFUND mine a RULES {", no_refund),
        ("SG.RESET mine a RULES {", no_refund),
    ] {
        assert_eq!(connection.line(line), expected, "{line}");
    }
}

#[test]
fn a_token_that_ends_or_is_revoked_is_good_for_no_further_command() {
    let revoked = "-NOAUTH Authentication required: invalid token: unknown or revoked";
    let ended = "-NOAUTH Authentication required: the token has expired";
    for address in [LOOPBACK, ELSEWHERE] {
        let (mut stage, mut connection) = with_tokens(address, "");
        assert_eq!(connection.line("AUTH good"), "+OK");
        stage.revoke("checks");
        assert_eq!(connection.line("PING"), "+PONG");
        stage.revoke("good");
        for line in ["PING", "SG.CHECK login a", "SG.CHECK login a", "CL.THROTTLE k 1 1 1"] {
            assert_eq!(connection.line(line), revoked, "{line}");
        }
        assert_eq!(connection.line("AUTH good"), WRONG);
        assert_eq!(connection.line("PING"), revoked);
        assert_eq!(connection.line("AUTH refunds"), "+OK");
        assert_eq!(connection.line("PING"), "+PONG");
        connection.now = END;
        assert_eq!(connection.line("PING"), ended);
        assert_eq!(connection.line("SG.RESET login a"), ended);
        assert_eq!(connection.line("AUTH refunds"), EXPIRED);
    }
}

#[test]
fn who_says_a_wrong_token_is_not_nobody_until_they_begin_anew() {
    let (_stage, mut connection) = with_tokens(LOOPBACK, "");
    for (line, expected) in [
        ("PING", "+PONG"),
        ("AUTH wrong", WRONG),
        ("PING", NO_AUTH),
        ("RESET", "+RESET"),
        ("PING", "+PONG"),
        // A client whose next token is not known here yet keeps the one that is.
        ("AUTH good", "+OK"),
        ("AUTH wrong", WRONG),
        ("PING", "+PONG"),
    ] {
        assert_eq!(connection.line(line), expected, "{line}");
    }
    for _ in 0..6 {
        assert_eq!(connection.next, NextStep::GoOn);
        assert_eq!(connection.line("AUTH wrong"), WRONG);
    }
    assert_eq!(connection.next, NextStep::Close);
}

#[test]
fn a_password_is_one_only_where_no_token_is_required() {
    let (_stage, mut here) = with_tokens(LOOPBACK, "hunter2");
    for (line, expected) in [
        ("PING", NO_AUTH),
        ("AUTH hunter2", "+OK"),
        ("SG.CHECK api k APP shop", "*8 :1 :1 :0 :0 :500 :0 $12 token_bucket $5 store"),
        ("AUTH wrong", WRONG),
        ("PING", NO_AUTH),
        ("AUTH good", "+OK"),
        ("SG.CHECK api k APP other", "-NOPERM the token belongs to another app"),
    ] {
        assert_eq!(here.line(line), expected, "{line}");
    }
    let (stage, mut there) = with_tokens(ELSEWHERE, "hunter2");
    for (line, expected) in [
        ("AUTH hunter2", WRONG),
        ("AUTH default hunter2", WRONG),
        ("PING", NO_AUTH),
        ("AUTH shop good", "+OK"),
    ] {
        assert_eq!(there.line(line), expected, "{line}");
    }
    assert_eq!(stage.refused(Wire::Resp), [("missing", 1), ("unknown", 2)]);
}

/// Returns whether `bytes` are one whole reply, by an independent parser.
fn is_reply(bytes: &[u8], resp3: bool) -> bool {
    if resp3 {
        let decoded: Option<(Frame3, usize)> = decode3(bytes).expect("a reply of RESP3");
        decoded.is_some_and(|(_, length)| length == bytes.len())
    } else {
        let decoded: Option<(Frame2, usize)> = decode2(bytes).expect("a reply of RESP2");
        decoded.is_some_and(|(_, length)| length == bytes.len())
    }
}

fn word() -> impl Strategy<Value = Vec<u8>> {
    let known = proptest::sample::select(
        &[
            "SG.CHECK",
            "SG.PEEK",
            "SG.RESET",
            "SG.ACQUIRE",
            "CL.THROTTLE",
            "PING",
            "ECHO",
            "CLIENT",
            "COMMAND",
            "INFO",
            "DOCS",
            "COUNT",
            "SETNAME",
            "GETNAME",
            "AUTH",
            "SELECT",
            "login",
            "api",
            "jobs",
            "APP",
            "shop",
            "COST",
            "MAXWAIT",
            "RULES",
            "[{\"concurrency\":{\"limit\":1,\"ttl\":\"1s\"}}]",
            "[{\"leaky_bucket\":{\"rate\":\"1/s\"}}]",
            "0",
            "1",
            "2",
            "30",
        ][..],
    );
    prop_oneof![
        8 => known.prop_map(|word| word.as_bytes().to_vec()),
        1 => proptest::collection::vec(any::<u8>(), 0..20),
    ]
}

proptest! {
    #[test]
    fn every_answer_is_one_reply(
        resp3 in any::<bool>(),
        commands in proptest::collection::vec(proptest::collection::vec(word(), 1..8), 1..6),
    ) {
        let mut connection = Connection::new("");
        if resp3 {
            connection.line("HELLO 3");
        }
        for command in commands {
            let words: Vec<_> = command.iter().map(Vec::as_slice).collect();
            let reply = connection.say(&words);
            prop_assert!(is_reply(&reply, resp3), "{}", reply.escape_ascii());
        }
    }
}
