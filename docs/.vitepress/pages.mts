// The pages of the site, by tab. The first page of a tab is the one that its name opens.

export const english = [
  {
    text: 'Tutorials', path: '/tutorials/', pages: [
      { text: '1. An order that closes itself', link: '/tutorials/sqlite' },
      { text: '2. A shop on MySQL and Redis', link: '/tutorials/mysql-redis' },
      { text: '3. Repair a dead entry in the pages', link: '/tutorials/dead-entry' },
    ],
  },
  {
    text: 'How-to', path: '/how-to/', pages: [
      {
        text: 'When something is wrong', items: [
          { text: 'Troubleshooting by symptom', link: '/how-to/troubleshooting' },
          { text: 'Find out why an entry does not run', link: '/how-to/explain' },
          { text: 'Find out what is stuck', link: '/how-to/health' },
          { text: 'An entry ran twice', link: '/how-to/ran-twice' },
          { text: 'Repair dead entries', link: '/how-to/dead-entries' },
          { text: 'After a failover or a restore', link: '/how-to/failover' },
        ],
      },
      {
        text: 'Record', items: [
          { text: 'Add it to your module', link: '/how-to/install' },
          { text: 'Coming from another tool', link: '/how-to/coming-from' },
          { text: 'Use it with GORM, bun, ent or sqlx', link: '/how-to/orms' },
          { text: 'Record several entries in one call', link: '/how-to/record-together' },
          { text: 'Cancel a delayed entry', link: '/how-to/cancel' },
          { text: 'Retry a transaction after a deadlock', link: '/how-to/retry-transactions' },
          { text: 'Process a message once', link: '/how-to/consume-once' },
          { text: 'Run work on a schedule', link: '/how-to/periodic' },
          { text: 'Two or more databases (sharding)', link: '/how-to/several-databases' },
          { text: 'Record from Java, .NET or PHP', link: '/how-to/record-by-sql' },
          { text: 'Move from your own table', link: '/how-to/move-from-your-own-table' },
          { text: 'Rename a type, or change its content', link: '/how-to/change-a-type' },
        ],
      },
      {
        text: 'Write handlers', items: [
          { text: 'Call a partner over HTTP', link: '/how-to/call-a-partner' },
          { text: 'Call a partner, then write', link: '/how-to/call-then-write' },
          { text: 'Choose retries and waiting times', link: '/how-to/retries' },
          { text: 'Undo step A when step B fails (saga)', link: '/how-to/undo' },
          { text: 'Wait for the result in an HTTP handler', link: '/how-to/wait-for-the-result' },
          { text: 'Wait for another system\'s answer', link: '/how-to/wait-for-an-answer' },
          { text: 'Limit calls to a partner (rate limiting)', link: '/how-to/limit-calls' },
          { text: 'Give some work priority', link: '/how-to/priorities' },
          { text: 'Handle entries in batches', link: '/how-to/batches' },
          { text: 'Run entries of one key in order', link: '/how-to/order' },
          { text: 'Send to RabbitMQ, Kafka or NATS', link: '/how-to/send-to-a-broker' },
          { text: 'Test handlers without a server', link: '/how-to/test-handlers' },
        ],
      },
      {
        text: 'Run it', items: [
          { text: 'Create the tables, grant the rights', link: '/how-to/tables' },
          { text: 'Choose sizes', link: '/how-to/size' },
          { text: 'Deploy, stop and upgrade', link: '/how-to/deploy' },
          { text: 'Deploy on Kubernetes', link: '/how-to/kubernetes' },
          { text: 'Run on Redis Cluster or Sentinel', link: '/how-to/redis-cluster' },
          { text: 'Alerts and what to do about them', link: '/how-to/alert' },
          { text: 'Serve readiness and Health', link: '/how-to/probes' },
          { text: 'Count outcomes and lateness in code', link: '/how-to/events' },
          { text: 'Keep and purge ended entries', link: '/how-to/purge' },
          { text: 'Encrypt and erase', link: '/how-to/erase' },
          { text: 'Copy a production database', link: '/how-to/copy' },
        ],
      },
      {
        text: 'Admin web pages', items: [
          { text: 'Give people pages and rights', link: '/how-to/admin' },
          { text: 'Serve the operator\'s pages', link: '/how-to/pages' },
          { text: 'Work on cases of dead entries', link: '/how-to/cases' },
          { text: 'Requeue, settle and cancel as a person', link: '/how-to/actions' },
          { text: 'Pause a business type', link: '/how-to/pause' },
          { text: 'Keep every failed attempt', link: '/how-to/attempts' },
          { text: 'See rates, durations and lateness', link: '/how-to/statistics' },
          { text: 'See which processes run', link: '/how-to/instances' },
        ],
      },
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

export const chinese = [
  {
    text: '教程', path: '/zh/tutorials/', pages: [
      { text: '一、订单超时自动关闭', link: '/zh/tutorials/sqlite' },
      { text: '二、用 MySQL 与 Redis 多进程关单', link: '/zh/tutorials/mysql-redis' },
      { text: '三、在管理后台处理死信', link: '/zh/tutorials/dead-entry' },
    ],
  },
  {
    text: '操作指南', path: '/zh/how-to/', pages: [
      {
        text: '出问题时', items: [
          { text: '按现象排查', link: '/zh/how-to/troubleshooting' },
          { text: '条目为什么不执行', link: '/zh/how-to/explain' },
          { text: '哪里卡住了', link: '/zh/how-to/health' },
          { text: '条目执行了两次', link: '/zh/how-to/ran-twice' },
          { text: '处理死信', link: '/zh/how-to/dead-entries' },
          { text: '故障切换或恢复备份之后', link: '/zh/how-to/failover' },
        ],
      },
      {
        text: '写入', items: [
          { text: '安装', link: '/zh/how-to/install' },
          { text: '从其他工具迁移', link: '/zh/how-to/coming-from' },
          { text: '与 GORM、bun、ent、sqlx 一起使用', link: '/zh/how-to/orms' },
          { text: '一次写入多个条目', link: '/zh/how-to/record-together' },
          { text: '支付时取消延迟条目', link: '/zh/how-to/cancel' },
          { text: '死锁后重试事务', link: '/zh/how-to/retry-transactions' },
          { text: '消费幂等（消息去重）', link: '/zh/how-to/consume-once' },
          { text: '定时任务', link: '/zh/how-to/periodic' },
          { text: '使用多个数据库（分库分表）', link: '/zh/how-to/several-databases' },
          { text: '从自建的表和 ZSET 迁移', link: '/zh/how-to/move-from-your-own-table' },
        ],
      },
      {
        text: '编写处理函数', items: [
          { text: '通过 HTTP 调用第三方', link: '/zh/how-to/call-a-partner' },
          { text: '先调用第三方，再写入', link: '/zh/how-to/call-then-write' },
          { text: '设置重试与等待', link: '/zh/how-to/retries' },
          { text: '后一步失败时撤销前一步（补偿）', link: '/zh/how-to/undo' },
          { text: '在 HTTP 请求里等待结果', link: '/zh/how-to/wait-for-the-result' },
          { text: '等待其他系统的答复', link: '/zh/how-to/wait-for-an-answer' },
          { text: '限制对第三方的调用（限流）', link: '/zh/how-to/limit-calls' },
          { text: '让紧急条目优先执行', link: '/zh/how-to/priorities' },
          { text: '批处理', link: '/zh/how-to/batches' },
          { text: '同一账户按顺序执行', link: '/zh/how-to/order' },
          { text: '投递到 RabbitMQ、Kafka 或 NATS', link: '/zh/how-to/send-to-a-broker' },
        ],
      },
      {
        text: '运行', items: [
          { text: '建表与权限', link: '/zh/how-to/tables' },
          { text: '部署、停止与升级', link: '/zh/how-to/deploy' },
          { text: '在 Kubernetes 上部署', link: '/zh/how-to/kubernetes' },
          { text: '告警', link: '/zh/how-to/alert' },
          { text: '就绪探针与 Health', link: '/zh/how-to/probes' },
          { text: '保留与清理已结束的条目', link: '/zh/how-to/purge' },
        ],
      },
      {
        text: '管理后台', items: [
          { text: '管理后台与权限', link: '/zh/how-to/admin' },
          { text: '提供管理后台', link: '/zh/how-to/pages' },
          { text: '处理死信的工单', link: '/zh/how-to/cases' },
          { text: '由人重新入队、办结、取消', link: '/zh/how-to/actions' },
          { text: '暂停一个类型', link: '/zh/how-to/pause' },
          { text: '保留每次失败的记录', link: '/zh/how-to/attempts' },
          { text: '查看速率、耗时和调度延迟', link: '/zh/how-to/statistics' },
          { text: '查看哪些进程在运行', link: '/zh/how-to/instances' },
        ],
      },
    ],
  },
  {
    text: '参考（英文）', path: '/reference/', pages: [
      { text: '保证', link: '/reference/guarantees' },
    ],
  },
  {
    text: '原理', path: '/zh/explanation/', pages: [
      { text: '工作原理', link: '/zh/explanation/how-it-works' },
      { text: '术语', link: '/zh/explanation/glossary' },
    ],
  },
]
