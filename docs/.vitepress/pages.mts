// The pages of the site, by tab. The first page of a tab is the one that its name opens.

export const english = [
  {
    text: 'Tutorials', path: '/tutorials/', pages: [
    ],
  },
  {
    text: 'How-to', path: '/how-to/', pages: [
      { text: 'Coming from another library', link: '/how-to/coming-from' },
      { text: 'Recipes', link: '/how-to/recipes' },
      { text: 'Use it with GORM, bun, ent or sqlx', link: '/how-to/orms' },
      { text: 'Move from your own table', link: '/how-to/move-from-your-own-table' },
      { text: 'Record from Java, .NET or PHP', link: '/how-to/record-by-sql' },
      { text: 'Test handlers without a server', link: '/how-to/test-handlers' },
      { text: 'Run work on a schedule', link: '/how-to/periodic' },
      { text: 'Run entries of one key in order', link: '/how-to/order' },
      { text: 'Create the tables', link: '/how-to/tables' },
      { text: 'Choose sizes', link: '/how-to/size' },
      { text: 'Deploy, stop and upgrade', link: '/how-to/deploy' },
      { text: 'Alert on what is stuck', link: '/how-to/alert' },
      { text: 'Repair dead entries', link: '/how-to/dead-entries' },
      { text: 'Give people pages and rights', link: '/how-to/admin' },
      { text: 'After a failover or a restore', link: '/how-to/failover' },
      { text: 'Keep and purge', link: '/how-to/purge' },
      { text: 'Erase personal data', link: '/how-to/erase' },
      { text: 'Copy a database', link: '/how-to/copy' },
    ],
  },
  {
    text: 'Reference', path: '/reference/', pages: [
      { text: 'Guarantees', link: '/reference/guarantees' },
      { text: 'Settings', link: '/reference/settings' },
      { text: 'Errors', link: '/reference/errors' },
      { text: 'Command line', link: '/reference/command-line' },
      { text: 'Tables and columns', link: '/reference/tables' },
      { text: 'Servers and their settings', link: '/reference/servers' },
      { text: 'Costs', link: '/reference/cost' },
      { text: 'Failures and reports', link: '/reference/problems' },
      { text: 'Telemetry', link: '/reference/telemetry' },
      { text: 'Glossary', link: '/reference/glossary' },
      { text: 'What is stable', link: '/reference/stability' },
    ],
  },
]

export const chinese = []
