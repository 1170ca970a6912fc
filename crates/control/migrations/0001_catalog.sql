-- The catalog. One text for all dialects: `{long}` is the type of long texts, `{options}` what ends a
-- table, `{index NAME (COLUMNS)}` an index of it. Times are milliseconds since 1970; truth is 0 or 1;
-- hashes are SHA-256 in hex. MySQL keeps what was done of a step that broke off, so that every statement
-- can be repeated.

-- One row, which every change locks first: so changes come one after the other, and so do the entries
-- of the audit.
CREATE TABLE head (
  id BIGINT NOT NULL PRIMARY KEY,
  -- Which catalog it is: random, and empty until somebody has thought of it.
  id_text VARCHAR(36) NOT NULL,
  revision BIGINT NOT NULL,
  audit_seq BIGINT NOT NULL,
  audit_hash VARCHAR(64) NOT NULL
) {options};

INSERT INTO head (id, id_text, revision, audit_seq, audit_hash)
SELECT 1, '', 0, 0, '0000000000000000000000000000000000000000000000000000000000000000'
FROM (SELECT COUNT(*) AS heads FROM head) AS there WHERE there.heads = 0;

CREATE TABLE accounts (
  id VARCHAR(36) NOT NULL PRIMARY KEY,
  name VARCHAR(128) NOT NULL UNIQUE,
  -- A PHC string of argon2id; none for those who sign in elsewhere only.
  password VARCHAR(255),
  -- Issuer and subject of who signs in elsewhere.
  subject VARCHAR(500) UNIQUE,
  is_admin BIGINT NOT NULL,
  is_disabled BIGINT NOT NULL,
  version BIGINT NOT NULL,
  created_at BIGINT NOT NULL
) {options};

CREATE TABLE apps (
  name VARCHAR(128) NOT NULL PRIMARY KEY,
  description VARCHAR(1000) NOT NULL,
  version BIGINT NOT NULL,
  created_at BIGINT NOT NULL
) {options};

CREATE TABLE members (
  app VARCHAR(128) NOT NULL,
  account VARCHAR(36) NOT NULL,
  role VARCHAR(16) NOT NULL,
  PRIMARY KEY (app, account),
  FOREIGN KEY (app) REFERENCES apps (name),
  FOREIGN KEY (account) REFERENCES accounts (id)
  {index members_of_account (account)}
) {options};

-- A deleted policy stays: its name keeps its versions, and nodes learn that it is gone.
CREATE TABLE policies (
  name VARCHAR(128) NOT NULL PRIMARY KEY,
  app VARCHAR(128) NOT NULL,
  state VARCHAR(16) NOT NULL,
  version BIGINT NOT NULL,
  revision BIGINT NOT NULL,
  document {long} NOT NULL,
  created_at BIGINT NOT NULL,
  created_by VARCHAR(300) NOT NULL,
  updated_at BIGINT NOT NULL,
  updated_by VARCHAR(300) NOT NULL,
  FOREIGN KEY (app) REFERENCES apps (name)
  {index policies_of_app (app, name)}
  {index policies_since (revision)}
) {options};

CREATE TABLE policy_versions (
  policy VARCHAR(128) NOT NULL,
  version BIGINT NOT NULL,
  state VARCHAR(16) NOT NULL,
  document {long} NOT NULL,
  author VARCHAR(300) NOT NULL,
  reason VARCHAR(1000) NOT NULL,
  at BIGINT NOT NULL,
  PRIMARY KEY (policy, version),
  FOREIGN KEY (policy) REFERENCES policies (name)
) {options};

-- Revoked tokens stay, too: nodes learn of it, and the audit names them.
CREATE TABLE tokens (
  id VARCHAR(36) NOT NULL PRIMARY KEY,
  app VARCHAR(128) NOT NULL,
  name VARCHAR(128) NOT NULL,
  hash VARCHAR(64) NOT NULL UNIQUE,
  scopes VARCHAR(200) NOT NULL,
  revision BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  created_by VARCHAR(300) NOT NULL,
  expires_at BIGINT NOT NULL,
  revoked_at BIGINT,
  used_at BIGINT,
  FOREIGN KEY (app) REFERENCES apps (name)
  {index tokens_of_app (app, name)}
  {index tokens_since (revision)}
) {options};

CREATE TABLE sessions (
  hash VARCHAR(64) NOT NULL PRIMARY KEY,
  account VARCHAR(36) NOT NULL,
  created_at BIGINT NOT NULL,
  seen_at BIGINT NOT NULL,
  source VARCHAR(100) NOT NULL,
  FOREIGN KEY (account) REFERENCES accounts (id)
  {index sessions_of_account (account)}
  {index sessions_by_age (created_at)}
) {options};

-- What was answered to a change that may be asked for again.
CREATE TABLE answers (
  actor VARCHAR(300) NOT NULL,
  name VARCHAR(128) NOT NULL,
  question VARCHAR(64) NOT NULL,
  answer {long} NOT NULL,
  at BIGINT NOT NULL,
  PRIMARY KEY (actor, name)
  {index answers_by_age (at)}
) {options};

CREATE TABLE nodes (
  name VARCHAR(128) NOT NULL PRIMARY KEY,
  software VARCHAR(64) NOT NULL,
  revision BIGINT NOT NULL,
  started_at BIGINT NOT NULL,
  seen_at BIGINT NOT NULL
) {options};

CREATE TABLE audit (
  seq BIGINT NOT NULL PRIMARY KEY,
  at BIGINT NOT NULL,
  actor VARCHAR(300) NOT NULL,
  source VARCHAR(100) NOT NULL,
  action VARCHAR(64) NOT NULL,
  app VARCHAR(128),
  target VARCHAR(300) NOT NULL,
  outcome VARCHAR(16) NOT NULL,
  reason VARCHAR(1000) NOT NULL,
  before_change {long},
  after_change {long},
  hash VARCHAR(64) NOT NULL
  {index audit_of_app (app, seq)}
) {options};
