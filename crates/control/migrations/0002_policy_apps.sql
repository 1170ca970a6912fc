-- The apps that a policy names in its `apps`, without deleted policies. An app that is named there may be
-- gone: somebody who has the database may have deleted it.
CREATE TABLE policy_apps (
  policy VARCHAR(128) NOT NULL,
  app VARCHAR(128) NOT NULL,
  PRIMARY KEY (policy, app),
  FOREIGN KEY (policy) REFERENCES policies (name)
  {index policies_that_name (app, policy)}
) {options};

-- The tables that the program has to fill from others before it uses them. It takes a row away in the
-- transaction that fills the table.
CREATE TABLE backfills (
  name VARCHAR(64) NOT NULL PRIMARY KEY
) {options};

INSERT INTO backfills (name)
SELECT 'policy_apps'
FROM (SELECT COUNT(*) AS backfills FROM backfills) AS there WHERE there.backfills = 0;
