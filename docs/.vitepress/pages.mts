// The pages of the site, by tab. The first page of a tab is the one that its name opens.

export const english = [
  {
    text: 'Tutorials', path: '/tutorials/', pages: [
    ],
  },
  {
    text: 'How-to', path: '/how-to/', pages: [
      { text: 'Troubleshooting by symptom', link: '/how-to/troubleshooting' },
      { text: 'Coming from another tool', link: '/how-to/coming-from' },
      { text: 'Use it with GORM, bun, ent or sqlx', link: '/how-to/orms' },
      { text: 'Record several entries at once', link: '/how-to/record-together' },
      { text: 'Cancel a delayed entry', link: '/how-to/cancel' },
      { text: 'Retry a transaction after a deadlock', link: '/how-to/retry-transactions' },
      { text: 'Process a message once', link: '/how-to/consume-once' },
      { text: 'Call a partner over HTTP', link: '/how-to/call-a-partner' },
      { text: 'Limit calls to a partner', link: '/how-to/limit-calls' },
      { text: 'Choose retries and waiting times', link: '/how-to/retries' },
      { text: 'Give some work priority', link: '/how-to/priorities' },
      { text: 'Wait for the result in an HTTP handler', link: '/how-to/wait-for-the-result' },
      { text: 'Wait for another system\'s answer', link: '/how-to/wait-for-an-answer' },
      { text: 'Undo step A when step B fails', link: '/how-to/undo' },
      { text: 'Handle entries in batches', link: '/how-to/batches' },
      { text: 'Run entries of one key in order', link: '/how-to/order' },
      { text: 'Run work on a schedule', link: '/how-to/periodic' },
      { text: 'Rename a type, or change its content', link: '/how-to/change-a-type' },
      { text: 'Use several databases', link: '/how-to/several-databases' },
      { text: 'Send to RabbitMQ, Kafka or NATS', link: '/how-to/send-to-a-broker' },
      { text: 'Record from Java, .NET or PHP', link: '/how-to/record-by-sql' },
      { text: 'Move from your own table', link: '/how-to/move-from-your-own-table' },
      { text: 'Test handlers without a server', link: '/how-to/test-handlers' },
      { text: 'Create the tables, grant the rights', link: '/how-to/tables' },
      { text: 'Choose sizes', link: '/how-to/size' },
      { text: 'Deploy, stop and upgrade', link: '/how-to/deploy' },
      { text: 'Run it on Kubernetes', link: '/how-to/kubernetes' },
      { text: 'Run on Redis Cluster or Sentinel', link: '/how-to/redis-cluster' },
      { text: 'Alert on what is stuck', link: '/how-to/alert' },
      { text: 'Repair dead entries', link: '/how-to/dead-entries' },
      { text: 'Give people pages and rights', link: '/how-to/admin' },
      { text: 'After a failover or a restore', link: '/how-to/failover' },
      { text: 'Keep and purge ended entries', link: '/how-to/purge' },
      { text: 'Encrypt and erase', link: '/how-to/erase' },
      { text: 'Copy a production database', link: '/how-to/copy' },
    ],
  },
  {
    text: 'Reference', path: '/reference/', pages: [
      { text: 'Guarantees', link: '/reference/guarantees' },
      { text: 'Settings', link: '/reference/settings' },
      { text: 'Errors', link: '/reference/errors' },
      { text: 'Failures and where they are reported', link: '/reference/problems' },
      { text: 'Command line', link: '/reference/command-line' },
      { text: 'Metrics and traces', link: '/reference/telemetry' },
      { text: 'Tables and columns', link: '/reference/tables' },
      { text: 'Servers and their settings', link: '/reference/servers' },
      { text: 'Costs in statements', link: '/reference/cost' },
      { text: 'Supported versions', link: '/reference/support' },
      { text: 'What is stable', link: '/reference/stability' },
      { text: 'Glossary', link: '/reference/glossary' },
    ],
  },
  {
    text: 'Explanation', path: '/explanation/', pages: [
      { text: 'How it works', link: '/explanation/how-it-works' },
      { text: 'Ten decisions', link: '/explanation/decisions' },
      { text: 'Performance', link: '/explanation/performance' },
      { text: 'Failure modes', link: '/explanation/failure-modes' },
      { text: 'Comparison', link: '/explanation/comparison' },
    ],
  },
]

export const chinese = []
