import { existsSync, statSync } from 'node:fs'
import { dirname, join, normalize, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { defineConfig, type DefaultTheme } from 'vitepress'
import { english, chinese } from './pages.mts'

const repository = 'https://github.com/compensator-go/compensator'
const api = 'https://pkg.go.dev/github.com/compensator-go/compensator'
const docs = join(dirname(fileURLToPath(import.meta.url)), '..')

// slugify makes the anchors that GitHub makes, so that one link works on both.
function slugify(heading: string): string {
  return heading.trim().toLowerCase().replace(/[^\p{L}\p{M}\p{N}_\- ]/gu, '').replace(/ /g, '-')
}

type Page = { text: string; link: string }
type Group = { text: string; items: Page[] }
type Tab = { text: string; path: string; pages: (Page | Group)[] }

// firstLink returns the link of the first page of a tab, which the tab's name opens.
function firstLink(tab: Tab): string {
  const first = tab.pages[0]
  return 'items' in first ? first.items[0].link : first.link
}

function nav(tabs: Tab[], apiText: string): DefaultTheme.NavItem[] {
  return [
    ...tabs.map((tab) => ({ text: tab.text, link: firstLink(tab), activeMatch: `^${tab.path}` })),
    { text: apiText, link: api },
  ]
}

function sidebar(tabs: Tab[]): DefaultTheme.SidebarMulti {
  return Object.fromEntries(tabs.filter((tab) => tab.path !== '/reference/' || tab.pages.length > 1).map((tab) => [tab.path, [{ text: tab.text, items: tab.pages }]]))
}

export default defineConfig({
  title: 'compensator',
  base: '/compensator/',
  cleanUrls: true,
  lastUpdated: false, // The build needs no history.
  srcExclude: ['internals/**'],
  locales: {
    root: {
      label: 'English',
      lang: 'en',
      description: 'A Go library: transactional outbox, delayed tasks and compensation on MySQL, MariaDB or SQLite',
      themeConfig: { nav: nav(english, 'API'), sidebar: sidebar(english) },
    },
    zh: {
      label: '中文',
      lang: 'zh-CN',
      description: 'Go 语言的本地消息表、延迟任务与补偿库，支持 MySQL、MariaDB 和 SQLite',
      themeConfig: {
        nav: nav(chinese, 'API 文档'),
        sidebar: sidebar(chinese),
        outline: { label: '本页目录' },
        docFooter: { prev: '上一页', next: '下一页' },
        darkModeSwitchLabel: '外观',
        lightModeSwitchTitle: '切换到浅色模式',
        darkModeSwitchTitle: '切换到深色模式',
        sidebarMenuLabel: '目录',
        returnToTopLabel: '回到顶部',
        langMenuLabel: '切换语言',
        skipToContentLabel: '跳到正文',
        notFound: { title: '没有这个页面', quote: '地址可能写错了，或者页面已经移走。', linkText: '返回首页', linkLabel: '返回首页' },
      },
    },
  },
  themeConfig: {
    outline: [2, 3],
    search: {
      provider: 'local',
      options: {
        // The site sends the source of these functions to the browser, so they use nothing outside themselves.
        miniSearch: {
          options: {
            // Chinese has no spaces between words, so each pair of neighbouring characters is a term.
            tokenize: (text: string) => (text.toLowerCase().match(/\p{Script=Han}+|[^\s\p{P}\p{Script=Han}]+/gu) ?? [])
              .flatMap((run) => run.length > 2 && /\p{Script=Han}/u.test(run) ? Array.from({ length: run.length - 1 }, (_, i) => run.slice(i, i + 2)) : run),
            // Drops the words that only make a query a question. Adds the stem, so that "alerted" finds "alert".
            processTerm: (term: string) => {
              if (/^(an?|and|are|am|as|at|be|by|can|could|did|do|does|for|from|has|have|how|i|if|in|is|it|its|me|my|of|on|or|should|so|than|that|the|then|there|these|this|to|was|we|what|when|where|which|why|will|with|you|your|如何|怎么|怎样|什么|为什|么样)$/.test(term)) return null
              const ended = /^(.{4,}?)(?:at(?:e[sd]?|ing|ions?))$/.exec(term) ?? /^(.*?[aeiouy].*?)(?:ings?|ions?|e[sd]?|s)$/.exec(term)
              const stem = (ended && ended[1].length > 2 ? ended[1] : term).replace(/([^aeiou])\1$/, '$1').replace(/y$/, 'i')
              return stem === term ? term : [term, stem]
            },
          },
          // Most questions have a word that the answer lacks, so a page need not have every word.
          // Most questions ask how to do something.
          searchOptions: { combineWith: 'OR', prefix: true, fuzzy: 0.1, boostDocument: (id: string) => id.includes('/how-to/') ? 1.25 : 1 },
        },
        locales: {
          zh: {
            translations: {
              button: { buttonText: '搜索', buttonAriaLabel: '搜索' },
              modal: {
                noResultsText: '没有找到',
                resetButtonTitle: '清除',
                displayDetails: '显示详情',
                backButtonTitle: '关闭搜索',
                footer: { selectText: '选择', navigateText: '切换', closeText: '关闭' },
              },
            },
          },
        },
      },
    },
    socialLinks: [{ icon: 'github', link: repository }],
    footer: { message: 'Apache-2.0' },
  },
  markdown: {
    anchor: { slugify },
    config(md) {
      // A link to a file outside docs leads to the repository.
      md.core.ruler.push('repository-links', (state) => {
        const page = state.env.relativePath as string | undefined
        if (page === undefined) return
        for (const block of state.tokens) {
          for (const token of block.children ?? []) {
            const href = token.attrGet?.('href')
            if (token.type !== 'link_open' || !href || /^([a-z]+:|#|\/)/.test(href)) continue
            const [path, anchor] = href.split('#')
            const target = relative(docs, normalize(join(docs, dirname(page), path)))
            if (!target.startsWith('..')) continue
            const inTree = normalize(target).replace(/^\.\.\/?/, '')
            const file = join(docs, '..', inTree)
            const kind = existsSync(file) && statSync(file).isDirectory() ? 'tree' : 'blob'
            token.attrSet('href', `${repository}/${kind}/main/${inTree}${anchor ? '#' + anchor : ''}`)
          }
        }
      })
    },
  },
})
