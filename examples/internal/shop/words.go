package shop

import (
	"encoding/json"
	"net/http"
	"strings"
)

// Words holds the texts of the page in one language.
type Words struct {
	Lang, Other, OtherName                                          string
	Lost, Failed                                                    string
	Stock, InRedis, InDatabase, Of, Empty, Down                     string
	AnswersASecond, P99                                             string
	Orders, Waiting, Open, Paid, Closed, Undone                     string
	Entries, Type, EWaiting, Sent, Done, Undoing, Cancelled, Person string
	Buyer, Buy, Crowd, Buyers, Start, Act                           string
	Faults                                                          string
	Accepted, SoldOut, Again, Busy, Bad, CrowdIn, Crowded           string
}

// These are the texts of the page.
var English = Words{
	Lang: "en", Other: "zh", OtherName: "中文",
	Lost: "No connection to the service; trying again.", Failed: "The service did not answer. Try again: a buyer gets one piece.",
	Stock: "Stock", InRedis: "in Redis", InDatabase: "in the database", Of: "of", Empty: "lost, being rebuilt", Down: "away",
	AnswersASecond: "answers/s", P99: "99 % within",
	Orders: "Orders", Waiting: "on the way", Open: "unpaid", Paid: "paid", Closed: "closed", Undone: "undone",
	Entries: "Entries of the log", Type: "type", EWaiting: "waiting", Sent: "under way", Done: "done", Undoing: "undoing", Cancelled: "cancelled", Person: "person",
	Act: "Take part", Buyer: "Buyer", Buy: "Buy one", Crowd: "A crowd", Buyers: "Buyers at once", Start: "Let them in",
	Faults:   "Faults",
	Accepted: "the piece is yours; your order is on its way", SoldOut: "sold out", Again: "you have already bought", Busy: "try again in a moment",
	Bad: "the service does not understand this request", CrowdIn: "the crowd has come", Crowded: "a crowd is already here",
}

var Chinese = Words{
	Lang: "zh", Other: "en", OtherName: "English",
	Lost: "与服务的连接已断开，正在重连。", Failed: "服务没有响应。请重试：每人只会买到一件。",
	Stock: "库存", InRedis: "Redis 中", InDatabase: "数据库中", Of: "共", Empty: "已丢失，正在重建", Down: "不可用",
	AnswersASecond: "应答/秒", P99: "99% 不超过",
	Orders: "订单", Waiting: "处理中", Open: "待支付", Paid: "已支付", Closed: "已关闭", Undone: "已撤销",
	Entries: "条目", Type: "类型", EWaiting: "等待", Sent: "进行中", Done: "完成", Undoing: "补偿中", Cancelled: "已取消", Person: "人工",
	Act: "参与", Buyer: "买家", Buy: "买一件", Crowd: "人群", Buyers: "同时到来的买家", Start: "放人进场",
	Faults:   "故障",
	Accepted: "抢到了，订单正在生成", SoldOut: "已售罄", Again: "您已买过", Busy: "请稍后重试",
	Bad: "请求无法识别", CrowdIn: "人群已进场", Crowded: "已有人群在场",
}

// Outcomes maps the code of each answer to its text for the visitor, as JSON for the page's script.
func (w Words) Outcomes() string {
	text, _ := json.Marshal(map[string]string{"accepted": w.Accepted, "sold_out": w.SoldOut, "bought_already": w.Again, "try_again": w.Busy, "bad_request": w.Bad, "too_large": w.Bad,
		"crowd": w.CrowdIn, "crowded": w.Crowded, "lost": w.Lost, "failed": w.Failed})
	return string(text)
}

func wordsFor(r *http.Request) Words {
	wish := r.URL.Query().Get("lang")
	if wish == "" {
		wish = r.Header.Get("Accept-Language")
	}
	if strings.HasPrefix(strings.ToLower(wish), "zh") {
		return Chinese
	}
	return English
}
