package main

import (
	"net/http"
	"strings"
)

type words struct {
	Lang, Other, OtherName                                     string
	Title, Intro, Lost, Failed                                 string
	Upload, Batch, Operator, CSV, Sample, Send                 string
	Totals, Users, Synced, Waiting, SentAgain, Person          string
	Batches, NoBatch, ForPerson, Nobody, Email, Repair, Faults string
}

var english = words{
	Lang: "en", Other: "zh", OtherName: "中文",
	Title: "Syncing users",
	Intro: "A user whom no consumer has synced in time is sent again; after some tries a person gets it.",
	Lost:  "No connection to the service; trying again.", Failed: "The service did not answer. Try again: the same batch is uploaded once.",
	Upload: "Upload a batch", Batch: "Batch", Operator: "Operator", CSV: "Users (CSV: user,name,email)", Sample: "Fill in 50 users", Send: "Upload",
	Totals: "All batches", Users: "users", Synced: "synced", Waiting: "on the way", SentAgain: "sent again", Person: "with a person",
	Batches: "Batches", NoBatch: "No batch yet.", ForPerson: "Waiting for a person", Nobody: "Nobody.",
	Email: "E-mail", Repair: "Repair and send again", Faults: "Faults",
}

var chinese = words{
	Lang: "zh", Other: "en", OtherName: "English",
	Title: "用户同步",
	Intro: "消费者未按时同步的用户会重新发送；多次仍未成功则转人工处理。",
	Lost:  "与服务的连接已断开，正在重连。", Failed: "服务没有响应。请重试：同一批次只会上传一次。",
	Upload: "上传批次", Batch: "批次", Operator: "操作人", CSV: "用户（CSV：user,name,email）", Sample: "填入 50 个用户", Send: "上传",
	Totals: "全部批次", Users: "用户", Synced: "已同步", Waiting: "处理中", SentAgain: "已重发", Person: "待人工",
	Batches: "批次", NoBatch: "还没有批次。", ForPerson: "等待人工处理", Nobody: "没有。",
	Email: "邮箱", Repair: "修正并重发", Faults: "故障",
}

func wordsFor(r *http.Request) words {
	wish := r.URL.Query().Get("lang")
	if wish == "" {
		wish = r.Header.Get("Accept-Language")
	}
	if strings.HasPrefix(strings.ToLower(wish), "zh") {
		return chinese
	}
	return english
}
